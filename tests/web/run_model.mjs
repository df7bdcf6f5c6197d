// Runs an ONNX file in onnxruntime-web:  node run_model.mjs DIST MODEL SHAPE < numbers as JSON
// and prints every output as JSON. DIST is the folder of onnxruntime-web's files.
import { readFileSync } from "node:fs";
import { join } from "node:path";
import { pathToFileURL } from "node:url";

const [dist, model, shape] = process.argv.slice(2);
const ort = await import(pathToFileURL(join(dist, "ort.wasm.min.mjs")));
ort.env.wasm.wasmPaths = pathToFileURL(dist).href + "/";
ort.env.wasm.numThreads = 1;
const session = await ort.InferenceSession.create(new Uint8Array(readFileSync(model)));
const numbers = Float32Array.from(JSON.parse(readFileSync(0, "utf-8")));
const input = new ort.Tensor("float32", numbers, shape.split(",").map(Number));
const answers = await session.run({ [session.inputNames[0]]: input });
const found = Object.entries(answers).map(([name, value]) => [name, {
  shape: value.dims,
  numbers: Array.from(value.data, (each) => Number.isNaN(Number(each)) ? null : Number(each)),
}]);
console.log(JSON.stringify(Object.fromEntries(found)));
