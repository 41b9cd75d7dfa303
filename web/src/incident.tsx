// A published incident: figures as published and as simulated, claims, assumptions, and what they do not explain.

import type { Report } from "./data.ts";
import * as format from "./format.ts";
import { cell, Section, Table, Text } from "./parts.tsx";

export function Incident({ of }: { of: NonNullable<Report["incident"]> }) {
  const held = of.claims.filter((claim) => claim.held).length;
  return (
    <Section id="incident" title="Published, and simulated" lead={<Text of={of.title} />}>
      <Table
        id="incident"
        caption="Figures that were published, and those of the simulation"
        columns={["row", "published", "simulated", "role"]}
        rows={() =>
          of.rows.map((row) => [
            { show: <Text of={row.id} /> },
            cell(row.published, row.published == null ? "none" : format.quantity(row.published, row.unit)),
            cell(row.simulated, format.quantity(row.simulated, row.unit)),
            { show: <Text of={row.role} /> },
          ])
        }
      />
      <h3>
        Claims: {held} of {of.claims.length} held
      </h3>
      <ul>
        {of.claims.map((claim, nr) => (
          <li key={nr} data-held={claim.held}>
            <b>{claim.held ? "held" : "not held"}</b>
            {claim.required ? "" : " (not required)"}: <Text of={claim.text} />
          </li>
        ))}
      </ul>
      <h3>Not explained</h3>
      <p>
        <Text of={of.unexplained} />
      </p>
      <details>
        <summary>What is assumed ({of.assumptions.length})</summary>
        <ul>
          {of.assumptions.map((assumption, nr) => (
            <li key={nr}>
              <Text of={assumption.what} /> (<Text of={assumption.source} />)
            </li>
          ))}
        </ul>
      </details>
    </Section>
  );
}
