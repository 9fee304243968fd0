// `npm run build`: rule.js becomes the component build/guest.wasm. No feature of the engine that would need the system is
// linked in, so the component imports our world and nothing else. `sluice plugin build` says where the world is: SLUICE_WIT.

import { mkdir, readFile, writeFile } from "node:fs/promises";
import { componentize } from "@bytecodealliance/componentize-js";

const { component, imports } = await componentize(await readFile("rule.js", "utf8"), {
  sourceName: "rule.js",
  witPath: process.env.SLUICE_WIT,
  worldName: "policy",
  disableFeatures: ["stdio", "random", "clocks", "http", "fetch-event"],
});
await mkdir("build", { recursive: true });
await writeFile("build/guest.wasm", component);
console.log(`build/guest.wasm: ${component.length} bytes, imports ${imports.map(String).join(", ")}`);
