// A canvas that fits its box, draws at most once a frame, and again when size or colours change.

import { useEffect, useLayoutEffect, useRef } from "preact/hooks";
import { shared } from "./store.ts";

export type Colours = (name: string) => string;

/** Custom properties of the page's style, read once for each scheme. */
let known = new Map<string, string>();
shared.scheme.listen(() => {
  known = new Map();
});
export const colour: Colours = (name) => {
  let found = known.get(name);
  if (found === undefined) {
    found = getComputedStyle(document.documentElement).getPropertyValue(`--${name}`).trim();
    known.set(name, found);
  }
  return found;
};

/** Black or white, whichever is read better on a colour (#rrggbb). */
export function inkOn(fill: string): string {
  const [r = 0, g = 0, b = 0] = [1, 3, 5].map((from) => {
    const share = Number.parseInt(fill.slice(from, from + 2), 16) / 255;
    return share <= 0.04045 ? share / 12.92 : ((share + 0.055) / 1.055) ** 2.4;
  });
  return 0.2126 * r + 0.7152 * g + 0.0722 * b > 0.18 ? "#0b0e13" : "#ffffff";
}

export type Draw = (context: CanvasRenderingContext2D, width: number, height: number) => void;

interface Props {
  height: number;
  label: string;
  draw: Draw;
  /** Draws again whenever one of these changes. */
  listen?: readonly { listen(listener: () => void): () => void }[];
  data?: Record<string, string | number>;
  onReady?: (canvas: HTMLCanvasElement, again: () => void) => void;
  hidden?: boolean;
}

export function Canvas({ height, label, draw, listen = [], data = {}, onReady, hidden = false }: Props) {
  const ref = useRef<HTMLCanvasElement>(null);
  const latest = useRef(draw);
  latest.current = draw;
  const again = useRef(() => {});
  useLayoutEffect(() => {
    const canvas = ref.current as HTMLCanvasElement;
    let wanted = 0;
    const now = () => {
      wanted = 0;
      const width = canvas.clientWidth;
      if (width === 0) return;
      const ratio = Math.min(window.devicePixelRatio || 1, 3);
      const [w, h] = [Math.round(width * ratio), Math.round(height * ratio)];
      if (canvas.width !== w || canvas.height !== h) {
        canvas.width = w;
        canvas.height = h;
      }
      const context = canvas.getContext("2d") as CanvasRenderingContext2D;
      context.setTransform(ratio, 0, 0, ratio, 0, 0);
      context.clearRect(0, 0, width, height);
      const before = performance.now();
      latest.current(context, width, height);
      canvas.dataset.drawMs = (performance.now() - before).toFixed(1);
      canvas.dataset.draws = String(Number(canvas.dataset.draws ?? 0) + 1);
    };
    again.current = () => {
      if (wanted === 0) wanted = requestAnimationFrame(now);
    };
    const atOnce = () => now();
    const size = new ResizeObserver(() => again.current());
    size.observe(canvas);
    const off = [shared.scheme, ...listen].map((of) => of.listen(() => again.current()));
    window.addEventListener("iowhy-print", atOnce);
    onReady?.(canvas, () => again.current());
    now();
    return () => {
      cancelAnimationFrame(wanted);
      size.disconnect();
      window.removeEventListener("iowhy-print", atOnce);
      for (const stop of off) stop();
    };
  }, [height, ...listen]);
  useEffect(() => again.current());
  const attributes = Object.fromEntries(Object.entries(data).map(([key, of]) => [`data-${key}`, String(of)]));
  const role = hidden ? { "aria-hidden": true as const } : { role: "img" as const, "aria-label": label };
  return <canvas ref={ref} class="canvas" style={{ height: `${height}px` }} {...role} {...attributes} />;
}
