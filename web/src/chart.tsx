// A chart of x/y series: SVG over a canvas, as large as its box, so that its text has one size everywhere. Margins are
// measured from the labels; labels that would touch are left out. Under the pointer a line of words says what is there.

import type { ComponentChildren } from "preact";
import { useEffect, useLayoutEffect, useRef, useState } from "preact/hooks";
import { type Colours, colour } from "./canvas.tsx";
import { linear, logarithmic, logTicks, type Scale, ticks } from "./scale.ts";
import { shared } from "./store.ts";

const FONT = "11.5px system-ui, 'Segoe UI', 'DejaVu Sans', sans-serif";
const TOP = 10;
let pen: CanvasRenderingContext2D | null | undefined;

/** Width of a text in the font of ticks, px. */
export function textWidth(text: string): number {
  if (pen === undefined)
    pen = typeof document === "undefined" ? null : document.createElement("canvas").getContext("2d");
  if (!pen) return text.length * 6.6;
  pen.font = FONT;
  return pen.measureText(text).width;
}

export interface Axis {
  from: number;
  to: number;
  log?: boolean;
  text: (value: number) => string;
  title: string;
  /** Ticks, if they are not to be chosen. */
  at?: readonly number[];
}

/** Ticks whose labels stay apart by 8 px or more, and do not say the same twice. `sizes` gives a label's extent along the axis. */
export function fitted(axis: Axis, scale: Scale, length: number, sizes: (text: string) => number): number[] {
  const apart = (x: number, y: number) =>
    Math.abs(scale(x) - scale(y)) >= (sizes(axis.text(x)) + sizes(axis.text(y))) / 2 + 8 &&
    axis.text(x) !== axis.text(y);
  const fits = (value: number, others: readonly number[]) => others.every((other) => apart(value, other));
  if (axis.log && !axis.at)
    return logTicks(axis.from, axis.to, Math.max(2, Math.floor(length / (sizes("0") + 24))), fits);
  if (axis.at) {
    const kept: number[] = [];
    for (const value of axis.at) if (fits(value, kept)) kept.push(value);
    return kept;
  }
  for (let count = Math.min(8, Math.max(2, Math.floor(length / 40))); count > 1; count--) {
    const values = ticks(axis.from, axis.to, count);
    if (values.every((value, i) => i === 0 || apart(value, values[i - 1] as number))) return values;
  }
  return ticks(axis.from, axis.to, 1).slice(0, 1);
}

/** Width of an element, px; followed. */
export function useWidth<T extends HTMLElement>(): [{ current: T | null }, number] {
  const ref = useRef<T>(null);
  const [width, set] = useState(0);
  useLayoutEffect(() => {
    const of = ref.current;
    if (!of) return;
    const measure = () => set(Math.round(of.clientWidth));
    const size = new ResizeObserver(measure);
    size.observe(of);
    measure();
    return () => size.disconnect();
  });
  return [ref, width];
}

export interface Frame {
  left: number;
  right: number;
  top: number;
  bottom: number;
  width: number;
  height: number;
}

interface Props {
  label: string;
  height?: number;
  x: Axis;
  y: Axis;
  draw?: (x: Scale, y: Scale, frame: Frame) => ComponentChildren;
  /** Many marks go onto the canvas below. */
  paint?: (context: CanvasRenderingContext2D, x: Scale, y: Scale, colour: Colours) => void;
  data?: Record<string, string>;
  /** Words for a place. */
  say?: (x: number, y: number) => string;
  /** A range of x was drawn with the pointer. */
  onRange?: (from: number, to: number) => void;
}

export function Chart({ label, height = 240, x: xs, y: ys, draw, paint, data = {}, say, onRange }: Props) {
  const [box, wide] = useWidth<HTMLDivElement>();
  const canvas = useRef<HTMLCanvasElement>(null);
  const [words, tell] = useState<{ x: number; text: string } | null>(null);
  const [range, setRange] = useState<[number, number] | null>(null);
  const width = Math.max(wide, 120);
  const bottom = height - (xs.title ? 38 : 22);
  const y = (ys.log ? logarithmic : linear)(ys.from, ys.to, bottom, TOP);
  const yAt = fitted(ys, y, bottom - TOP, () => 8);
  const left = Math.ceil(Math.max(12, ...yAt.map((of) => textWidth(ys.text(of)))) + 8 + (ys.title ? 18 : 0));
  const right = width - 16;
  const x = (xs.log ? logarithmic : linear)(xs.from, xs.to, left, right);
  const xAt = fitted(xs, x, right - left, textWidth);
  useEffect(() => {
    const of = canvas.current;
    if (!of || !paint) return;
    const again = () => {
      const ratio = Math.min(window.devicePixelRatio || 1, 3);
      of.width = Math.round(width * ratio);
      of.height = Math.round(height * ratio);
      const context = of.getContext("2d") as CanvasRenderingContext2D;
      context.setTransform(ratio, 0, 0, ratio, 0, 0);
      paint(context, x, y, colour);
    };
    again();
    return shared.scheme.listen(again);
  });
  const place = (event: MouseEvent) => {
    const rect = (box.current as HTMLDivElement).getBoundingClientRect();
    return { px: event.clientX - rect.left, py: event.clientY - rect.top };
  };
  const pointer = say || onRange;
  const within = (px: number) => Math.min(Math.max(px, left), right);
  return (
    <div
      ref={box}
      class={`chart-box${onRange ? " brushed" : ""}`}
      style={{ height: `${height}px` }}
      onPointerDown={
        onRange
          ? (event) => {
              if (event.button !== 0) return;
              const { px } = place(event);
              setRange([within(px), within(px)]);
              box.current?.setPointerCapture(event.pointerId);
            }
          : undefined
      }
      onPointerMove={
        pointer
          ? (event) => {
              const { px, py } = place(event);
              if (range) setRange([range[0], within(px)]);
              tell(say && px >= left && px <= right ? { x: px, text: say(x.invert(px), y.invert(py)) } : null);
            }
          : undefined
      }
      onPointerUp={
        onRange
          ? () => {
              if (range && Math.abs(range[1] - range[0]) > 3) {
                onRange(x.invert(Math.min(...range)), x.invert(Math.max(...range)));
              }
              setRange(null);
            }
          : undefined
      }
      onPointerCancel={() => setRange(null)}
      onPointerLeave={pointer ? () => tell(null) : undefined}
    >
      {paint ? <canvas ref={canvas} class="chart-canvas" style={{ height: `${height}px` }} /> : null}
      <svg
        class="chart"
        viewBox={`0 0 ${width} ${height}`}
        width={width}
        height={height}
        role="img"
        aria-label={label}
        {...data}
      >
        {yAt.map((at) => (
          <g key={`y${at}`}>
            <line class="grid" x1={left} x2={right} y1={y(at)} y2={y(at)} />
            <text class="tick y-tick" x={left - 6} y={y(at) + 4} text-anchor="end">
              {ys.text(at)}
            </text>
          </g>
        ))}
        {xAt.map((at) => (
          <g key={`x${at}`}>
            <line class="grid" x1={x(at)} x2={x(at)} y1={TOP} y2={bottom} />
            <text
              class="tick x-tick"
              x={Math.min(x(at), width - textWidth(xs.text(at)) / 2)}
              y={bottom + 15}
              text-anchor="middle"
            >
              {xs.text(at)}
            </text>
          </g>
        ))}
        {draw?.(x, y, { left, right, top: TOP, bottom, width, height })}
        {range ? (
          <rect
            class="brush"
            x={Math.min(...range)}
            width={Math.abs(range[1] - range[0])}
            y={TOP}
            height={bottom - TOP}
          />
        ) : null}
        {words ? <line class="cross" x1={words.x} x2={words.x} y1={TOP} y2={bottom} /> : null}
        {xs.title ? (
          <text class="axis" x={(left + right) / 2} y={height - 5} text-anchor="middle">
            {xs.title}
          </text>
        ) : null}
        {ys.title ? (
          <text
            class="axis y-title"
            x={11}
            y={(TOP + bottom) / 2}
            text-anchor="middle"
            transform={`rotate(-90 11 ${(TOP + bottom) / 2})`}
          >
            {ys.title}
          </text>
        ) : null}
      </svg>
      {words ? (
        <div
          class="tip"
          style={
            words.x > width / 2
              ? { right: `${width - words.x + 10}px`, top: "6px" }
              : { left: `${words.x + 10}px`, top: "6px" }
          }
        >
          {words.text}
        </div>
      ) : null}
    </div>
  );
}
