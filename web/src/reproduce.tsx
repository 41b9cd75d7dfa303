// How to make the runs again, what differs between the two sides' fingerprints, and the raw data.

import type { Report } from "./data.ts";
import { Letter, Section, Table, Text } from "./parts.tsx";

export function Reproduce({ report, json }: { report: Report; json: string }) {
  const differing = new Set(report.differences.map((of) => of.key));
  const keys = [...new Set(report.sides.flatMap((side) => side.facts.map((fact) => fact.key)))];
  const download = () => {
    const url = URL.createObjectURL(new Blob([json], { type: "application/json" }));
    const link = document.createElement("a");
    link.href = url;
    link.download = "iowhy-report.json";
    link.click();
    setTimeout(() => URL.revokeObjectURL(url), 10_000);
  };
  return (
    <Section id="reproduce" title="Reproduce">
      {report.sides.map((side, nr) =>
        side.command ? (
          <p key={nr} class="command">
            <Letter side={nr} /> <Text code of={`iowhy ${side.command}`} />
          </p>
        ) : null,
      )}
      {report.differences.length > 0 ? (
        <div class="differences">
          <Table
            id="differences"
            caption="What differs between the fingerprints"
            columns={["key", "A", "B"]}
            rows={() =>
              report.differences.map((of) => [
                { show: <Text of={of.key} /> },
                { show: <Text of={of.a} /> },
                { show: <Text of={of.b} /> },
              ])
            }
          />
        </div>
      ) : report.sides.length === 2 ? (
        <p>The fingerprints of both sides are the same.</p>
      ) : null}
      <details data-numbers="facts">
        <summary>All that is known of the runs ({keys.length} facts)</summary>
        <Table
          id="facts"
          caption="Facts of the runs; ≠ marks differences"
          columns={["fact", ...report.sides.map((_, nr) => "AB".charAt(nr))]}
          rows={() =>
            keys.map((key) => [
              {
                show: (
                  <>
                    {differing.has(key) ? <b class="differs">≠ </b> : null}
                    <Text of={key} />
                  </>
                ),
              },
              ...report.sides.map((side) => ({
                show: <Text of={side.facts.find((fact) => fact.key === key)?.value ?? ""} />,
              })),
            ])
          }
        />
      </details>
      <p>
        <button type="button" id="download" onClick={download}>
          Download the raw data (JSON)
        </button>{" "}
        <span class="hint">
          Written by iowhy <Text of={report.version} />.
        </span>
      </p>
    </Section>
  );
}
