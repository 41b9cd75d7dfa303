// From the data block of the page to the report: base64, gzip (the browser's own DecompressionStream), JSON.

import type { Report } from "./data.ts";

/** The report, and its JSON as it was written: what the download gives. */
export interface Unpacked {
  report: Report;
  json: string;
}

export function base64Bytes(text: string): Uint8Array<ArrayBuffer> {
  const binary = atob(text.trim());
  const bytes = new Uint8Array(binary.length);
  for (let i = 0; i < binary.length; i++) bytes[i] = binary.charCodeAt(i);
  return bytes;
}

export async function gunzip(bytes: Uint8Array<ArrayBuffer>): Promise<string> {
  const stream = new Blob([bytes]).stream().pipeThrough(new DecompressionStream("gzip"));
  return await new Response(stream).text();
}

export function checked(json: string): Unpacked {
  const report = JSON.parse(json) as Report;
  if (report?.schema !== "iowhy.report/1") {
    throw new Error(`this page reads iowhy.report/1, the data is ${String(report?.schema)}`);
  }
  return { report, json };
}

/** The report in a data block, or null if the block is empty. */
export async function unpack(block: string): Promise<Unpacked | null> {
  if (block.trim() === "") return null;
  return checked(await gunzip(base64Bytes(block)));
}
