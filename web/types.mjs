// Writes src/types.ts: the types of the JSON objects that the page reads, from ../schema. `node types.mjs --check` writes
// nothing and fails if the file is not what the schemas give. Numbers of an enumeration stay numbers: they are indices.
import { readFileSync, writeFileSync } from "node:fs";
import { dirname, join } from "node:path";
import { fileURLToPath } from "node:url";

const here = dirname(fileURLToPath(import.meta.url));
const OBJECTS = { Report: "report", Explanation: "explain", Comparison: "compare" };
// Objects within a report that have a schema of their own.
const WITHIN = {
  "Report.explanation": "Explanation",
  "Report.comparison": "Comparison",
  "Explanation.comparison": "Comparison",
};

function typeOf(schema, path, indent) {
  if (WITHIN[path]) return `${WITHIN[path]} | null`;
  if ("const" in schema) return JSON.stringify(schema.const);
  if (schema.enum) {
    const words = schema.enum.map((of) => (typeof of === "number" ? "number" : JSON.stringify(of)));
    return [...new Set(words)].join(" | ");
  }
  if (schema.oneOf) return schema.oneOf.map((of) => typeOf(of, path, indent)).join(" | ");
  const names = [schema.type ?? []].flat();
  const one = (name) => {
    switch (name) {
      case "integer":
      case "number":
        return "number";
      case "array": {
        const item = typeOf(schema.items ?? {}, `${path}[]`, indent);
        return / \| /.test(item) && !item.startsWith("{") ? `(${item})[]` : `${item}[]`;
      }
      case "object": {
        const { properties, additionalProperties, required = [] } = schema;
        if (!properties) {
          return typeof additionalProperties === "object"
            ? `Record<string, ${typeOf(additionalProperties, `${path}{}`, indent)}>`
            : "Record<string, unknown>";
        }
        const deeper = `${indent}  `;
        const keys = Object.entries(properties).map(([key, of]) => {
          const name = /^[A-Za-z_]\w*$/.test(key) ? key : JSON.stringify(key);
          return `${deeper}${name}${required.includes(key) ? "" : "?"}: ${typeOf(of, `${path}.${key}`, deeper)};\n`;
        });
        return `{\n${keys.join("")}${indent}}`;
      }
      default:
        return name;
    }
  };
  return names.length === 0 ? "unknown" : names.map(one).join(" | ");
}

export function types() {
  const all = Object.entries(OBJECTS).map(([name, file]) => {
    const schema = JSON.parse(readFileSync(join(here, `../schema/iowhy.${file}.1.json`), "utf8"));
    return `/** \`iowhy.${file}/1\` */\nexport interface ${name} ${typeOf(schema, name, "")}\n`;
  });
  return `// Made from schema/*.json by types.mjs: \`npm run types\`.\n\n${all.join("\n")}`;
}

if (process.argv[1] === fileURLToPath(import.meta.url)) {
  const file = join(here, "src/types.ts");
  if (!process.argv.includes("--check")) writeFileSync(file, types());
  else if (readFileSync(file, "utf8") !== types()) {
    console.error("src/types.ts is not what ../schema gives: npm run types");
    process.exitCode = 1;
  }
}
