// Small parts that every section uses: text that came from outside, tables, legends, headings.

import type { ComponentChildren } from "preact";
import { useState } from "preact/hooks";

/** A text from outside, as text. Its direction is its own, it may break anywhere, and a long one scrolls in a box. */
export function Text({ of, code = false }: { of: string | null | undefined; code?: boolean }) {
  const text = of ?? "";
  const long = text.length > 400;
  const props = { dir: "auto" as const, class: `text${long ? " long" : ""}`, ...(long ? { tabIndex: 0 } : {}) };
  return code ? <code {...props}>{text}</code> : <span {...props}>{text}</span>;
}

/** A sentence of iowhy's own, in which `names` stand between backticks. */
export function Prose({ of }: { of: string }) {
  const parts = of.length > 400 ? [of] : of.split("`");
  // Backticks that do not come in pairs mean nothing.
  if (parts.length % 2 === 0) return <Text of={of} />;
  return (
    <span dir="auto" class="text">
      {parts.map((part, nr) => (nr % 2 === 1 ? <code key={nr}>{part}</code> : part))}
    </span>
  );
}

/** A cell: its content, and the exact value for programs that read the page. */
export interface Cell {
  show: ComponentChildren;
  value?: number | string | null;
}
export const cell = (value: number | null, show: ComponentChildren): Cell => ({ show, value });

// Scrolling parts must be reachable by keys: a region with a tab stop (WCAG 2.1.1). The lint rules against that are off.

interface TableProps {
  id?: string;
  caption: string;
  columns: readonly string[];
  rows: () => readonly (readonly (Cell | string | number)[])[];
  /** Rows shown at most. */
  most?: number;
}

export function Table({ id, caption, columns, rows, most = 400 }: TableProps) {
  const all = rows();
  return (
    <div class="scroll" tabIndex={0} role="region" aria-label={caption}>
      <table data-table={id} data-rows={all.length}>
        <caption>
          {caption}
          {all.length > most ? ` (the first ${most} of ${all.length}; the raw data has all)` : ""}
        </caption>
        <thead>
          <tr>
            {columns.map((column) => (
              <th scope="col" key={column}>
                {column}
              </th>
            ))}
          </tr>
        </thead>
        <tbody>
          {all.slice(0, most).map((row, nr) => (
            <tr key={nr}>
              {row.map((of, column) => {
                const one: Cell = typeof of === "object" ? of : { show: of, value: of };
                const value =
                  one.value === undefined ? {} : { "data-v": one.value === null ? "null" : String(one.value) };
                const number = typeof one.value === "number" ? "num" : undefined;
                return column === 0 ? (
                  <th scope="row" key={column} class={number} {...value}>
                    {one.show}
                  </th>
                ) : (
                  <td key={column} class={number} {...value}>
                    {one.show}
                  </td>
                );
              })}
            </tr>
          ))}
        </tbody>
      </table>
    </div>
  );
}

/** The same numbers as a picture's, in a table that is made when it is opened. */
export function Numbers(props: TableProps) {
  const [open, set] = useState(false);
  return (
    <details class="numbers" data-numbers={props.id} onToggle={(event) => set(event.currentTarget.open)}>
      <summary>Numbers: {props.caption}</summary>
      {open ? <Table {...props} /> : null}
    </details>
  );
}

export function Section({
  id,
  title,
  lead,
  children,
}: {
  id: string;
  title: string;
  lead?: ComponentChildren;
  children: ComponentChildren;
}) {
  return (
    <section id={id} aria-labelledby={`${id}-title`}>
      <h2 id={`${id}-title`}>{title}</h2>
      {lead ? <p class="lead">{lead}</p> : null}
      {children}
    </section>
  );
}

export function Legend({ of }: { of: readonly (readonly [string, string])[] }) {
  return (
    <ul class="legend">
      {of.map(([name, words]) => (
        <li key={words}>
          <span class={`swatch s-${name}`} aria-hidden="true" />
          {words}
        </li>
      ))}
    </ul>
  );
}

/** A or B, by letter and colour. */
export function Letter({ side }: { side: number }) {
  return <b class={`letter side-${side}`}>{"AB"[side]}</b>;
}
