// Causes by layers: what each cause adds to each layer. The sums of rows and columns are those of the data; pointing at a
// cell lights the lanes of its layer in the timeline.

import type { Matrix } from "./data.ts";
import * as format from "./format.ts";
import type { LaneName } from "./lanes.ts";
import { cell, Numbers, Text } from "./parts.tsx";
import { shared } from "./store.ts";

/** The lanes in which time of a layer is seen. */
export const LANES_OF: Record<string, readonly LaneName[]> = {
  application: ["calls"],
  pauses: ["calls"],
  "CPU wait": ["calls"],
  CPU: ["calls"],
  "lock/wait": ["calls"],
  "journal/writeback": ["queue", "device"],
  "page cache": ["pages"],
  "read-ahead": ["windows"],
  merging: ["queue"],
  plug: ["plug"],
  elevator: ["queue"],
  device: ["device"],
};

const ORIGINS = { measured: "measured", shared: "by its share", rest: "" } as const;

type Part = { ns: number; half: number | null };

function Bar({ of, most, kind }: { of: Part; most: number; kind: string }) {
  const share = (ns: number) => (100 * Math.max(0, Math.min(most, ns))) / most;
  const size = Math.abs(of.ns);
  return (
    <span class="part" aria-hidden="true">
      <span class={`part-bar ${of.ns < 0 ? "less" : kind}`} style={{ width: `${share(size)}%` }} />
      {of.half != null && share(size + of.half) - share(size - of.half) > 0.5 ? (
        <span
          class="whisker"
          style={{ left: `${share(size - of.half)}%`, width: `${share(size + of.half) - share(size - of.half)}%` }}
        />
      ) : null}
    </span>
  );
}

const words = (of: Part) =>
  `${format.signed(of.ns, (ns) => format.time(ns))}${of.half == null ? ", no interval from single runs" : ` ± ${format.time(of.half)}`}`;

export function Causes({ of }: { of: Matrix }) {
  // The difference first: with many causes the last columns are reached by scrolling.
  const columns = [
    {
      name: "B − A",
      note: "",
      kind: "all",
      cells: of.ns.map((ns, nr): Part => ({ ns, half: of.half_ns[nr] ?? null })),
      sum: { ns: of.total_ns, half: of.total_half_ns },
    },
    ...of.rows.map((row) => ({
      name: row.name,
      note: ORIGINS[row.origin],
      kind: row.origin === "rest" ? "rest" : "more",
      cells: row.ns.map((ns, nr): Part => ({ ns, half: row.half_ns[nr] ?? null })),
      sum: { ns: row.sum_ns, half: row.sum_half_ns },
    })),
  ];
  const most = Math.max(1, ...columns.flatMap((column) => column.cells.map((one) => Math.abs(one.ns))));
  const light = (layer: string | null) => shared.lit.set(layer === null ? null : (LANES_OF[layer] ?? []));
  const part = (one: Part, kind: string, origin: string, layer: string | null) => (
    <td
      key={origin}
      data-v={one.ns}
      title={`${origin}${layer ? `, ${layer}` : ""}: ${words(one)}`}
      {...(layer ? { onPointerEnter: () => light(layer), onPointerLeave: () => light(null) } : {})}
    >
      {Math.abs(one.ns) < 0.5 ? (
        <span class="none">0</span>
      ) : (
        <>
          {format.signed(one.ns, (ns) => format.time(ns))}
          {layer ? <Bar of={one} most={most} kind={kind} /> : null}
        </>
      )}
    </td>
  );
  return (
    <figure id="matrix">
      <figcaption>What each cause adds to each layer, and how sure that is</figcaption>
      <div class="scroll" tabIndex={0} role="region" aria-label="Causes by layers">
        <table class="matrix" data-table="matrix">
          <thead>
            <tr>
              <th scope="col">layer</th>
              {columns.map((column) => (
                <th scope="col" key={column.name}>
                  <Text of={column.name} />
                  {column.note ? <small> {column.note}</small> : null}
                </th>
              ))}
            </tr>
          </thead>
          <tbody>
            {of.layers.map((layer, nr) => (
              <tr key={layer}>
                <th scope="row">
                  <button
                    type="button"
                    class="link layer"
                    title="Light its lanes in the timeline"
                    onFocus={() => light(layer)}
                    onBlur={() => light(null)}
                    onPointerEnter={() => light(layer)}
                    onPointerLeave={() => light(null)}
                    onClick={() => document.getElementById("timeline")?.scrollIntoView({ block: "start" })}
                  >
                    {layer}
                  </button>
                </th>
                {columns.map((column) =>
                  part(column.cells[nr] ?? { ns: 0, half: null }, column.kind, column.name, layer),
                )}
              </tr>
            ))}
            <tr class="sum">
              <th scope="row">all</th>
              {columns.map((column) => part(column.sum, column.kind, column.name, null))}
            </tr>
          </tbody>
        </table>
      </div>
      {of.note ? (
        <p class="hint">
          <Text of={of.note} />
        </p>
      ) : null}
      <Numbers
        id="matrix-parts"
        caption={`Causes by layers, with half of each ${Math.round(100 * of.level)} % interval`}
        columns={["cause", "layer", "ns", "± ns"]}
        rows={() =>
          columns.flatMap((column) =>
            column.cells.map((one, nr) => [
              column.name,
              of.layers[nr] ?? "",
              cell(one.ns, format.plain(one.ns)),
              cell(one.half, one.half == null ? "none" : format.plain(one.half)),
            ]),
          )
        }
      />
    </figure>
  );
}
