// Puts a report into the built page, as iowhy does: base64 of gzip between the tags of the data block.
import { readFileSync } from "node:fs";
import { gzipSync } from "node:zlib";

const page = new URL("../dist/report.html", import.meta.url);

export function packed(json) {
  const html = readFileSync(page, "utf8");
  const tag = 'data-encoding="gzip+base64">';
  const parts = html.split(tag);
  if (parts.length !== 2) throw new Error(`${parts.length - 1} data blocks in the page, not one`);
  return parts.join(tag + gzipSync(Buffer.from(json), { level: 9 }).toString("base64"));
}
