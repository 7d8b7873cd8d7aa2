import { readdir, stat } from "node:fs/promises";
import { join } from "node:path";
import { ProblemError, type Model } from "@internevo/domain";
import { openData, readExactly } from "./dataset/open-data.ts";

const FIELD = "initialWeights";
const MOST_DOCUMENT_BYTES = 2 ** 28;

const refuse = (path: string, message: string, remedy: string, cause?: unknown): ProblemError =>
  new ProblemError("data-invalid", `${path} ${message}`, [{ field: FIELD, value: path, message, remedy }], { cause });

async function readDocument(path: string, remedy: string): Promise<Record<string, unknown> | undefined> {
  if ((await stat(path).catch(() => undefined)) === undefined) return undefined;
  const { handle, sizeBytes } = await openData(path, FIELD);
  let text: string;
  try {
    if (sizeBytes > MOST_DOCUMENT_BYTES) throw refuse(path, `has ${sizeBytes} bytes, more than a description of weights has`, remedy);
    text = (await readExactly(handle, 0, sizeBytes)).toString("utf8");
  } finally {
    await handle.close();
  }
  let value: unknown;
  try {
    value = JSON.parse(text);
  } catch (error) {
    throw refuse(path, `is not JSON: ${(error as Error).message}`, remedy, error);
  }
  if (typeof value !== "object" || value === null || Array.isArray(value)) throw refuse(path, "is not a JSON object", remedy);
  return value as Record<string, unknown>;
}

/** A member of the folder's config.json for each size of a model; what a folder may leave out has a default. */
const HUGGING_FACE: readonly (readonly [there: string, here: keyof Model, missing?: (config: Record<string, unknown>) => unknown])[] = [
  ["hidden_size", "hiddenSize"],
  ["num_hidden_layers", "layers"],
  ["num_attention_heads", "heads"],
  ["num_key_value_heads", "kvHeads", (config) => config["num_attention_heads"]],
  ["intermediate_size", "ffnHiddenSize"],
  ["vocab_size", "vocabularySize"],
  ["tie_word_embeddings", "tiedEmbeddings", () => false],
  ["rms_norm_eps", "normEpsilon", () => 1e-6],
];

const WEIGHTS_REMEDY = "use the model of these weights, or other weights";

function assertEqual(path: string, there: string, found: unknown, here: keyof Model, model: Model): void {
  if (found === model[here]) return;
  const message = `has ${there} ${JSON.stringify(found) ?? "missing"}; the job's model has ${here} ${JSON.stringify(model[here])}`;
  throw new ProblemError("data-invalid", `${path} ${message}`, [{ field: FIELD, value: path, message, remedy: WEIGHTS_REMEDY }]);
}

async function assertFiles(folder: string, names: readonly string[]): Promise<void> {
  for (const name of names) {
    const found = await stat(join(folder, name)).catch(() => undefined);
    if (!found?.isFile() || found.size === 0) throw refuse(join(folder, name), found ? "is no file with content" : "does not exist", "copy the folder again, whole");
  }
}

async function assertHuggingFace(folder: string, config: Record<string, unknown>, model: Model): Promise<void> {
  const path = join(folder, "config.json");
  if (config["model_type"] !== "llama") throw refuse(path, `has model_type ${JSON.stringify(config["model_type"]) ?? "missing"}, which is not "llama"`, "give the folder of a LLaMA model");
  for (const [there, here, missing] of HUGGING_FACE) assertEqual(path, there, config[there] ?? missing?.(config), here, model);
  const rope = (config["rope_parameters"] ?? config["rope_scaling"]) as Record<string, unknown> | null | undefined;
  assertEqual(path, "rope_theta", rope?.["rope_theta"] ?? config["rope_theta"] ?? 10_000, "ropeTheta", model);
  if ((await stat(join(folder, "model.safetensors")).catch(() => undefined)) !== undefined) return assertFiles(folder, ["model.safetensors"]);
  const index = await readDocument(join(folder, "model.safetensors.index.json"), "mend the index");
  if (!index) throw refuse(folder, "has neither model.safetensors nor model.safetensors.index.json", "give a folder with safetensors files");
  const map = index["weight_map"];
  await assertFiles(folder, [...new Set(typeof map === "object" && map !== null ? Object.values(map).map(String) : [])]);
}

/**
 * Checks that weights can be begun with: that the folder exists, that it is a Hugging Face LLaMA folder or one checkpoint, whose model
 * is the job's, and that its files are there. What the files hold is checked when they are loaded.
 * @throws ProblemError `data-invalid`
 */
export async function assertInitialWeights(folder: string, model: Model): Promise<void> {
  const give = "give a Hugging Face LLaMA folder (config.json and safetensors), or the directory of one checkpoint (step-<N>)";
  const found = await stat(folder).catch((error: unknown) => {
    const code = (error as NodeJS.ErrnoException).code;
    throw refuse(folder, code === "ENOENT" || code === "ENOTDIR" ? "does not exist" : `cannot be read (${code ?? String(error)})`, give, error);
  });
  if (!found.isDirectory()) throw refuse(folder, "is no directory", give);
  const config = await readDocument(join(folder, "config.json"), "mend it");
  if (config) return assertHuggingFace(folder, config, model);
  const manifest = await readDocument(join(folder, "manifest.json"), "give another checkpoint");
  if (!manifest) {
    const steps = (await readdir(folder)).filter((name) => /^step-\d+$/.test(name));
    if (steps.length > 0) throw refuse(folder, "is the directory of a run's checkpoints", `give one of them, such as ${join(folder, steps.sort((a, b) => Number(b.slice(5)) - Number(a.slice(5)))[0] as string)}`);
    throw refuse(folder, "has neither a config.json nor a manifest.json", give);
  }
  const content = manifest["content"] as { identity?: { model?: Record<string, unknown> }; files?: { name: string }[] } | undefined;
  const saved = content?.identity?.model;
  if (!saved) throw refuse(join(folder, "manifest.json"), "names no model", "give another checkpoint");
  const { name: _name, initStandardDeviation: _deviation, ...sizes } = model;
  for (const here of Object.keys(sizes) as (keyof Model)[]) assertEqual(join(folder, "manifest.json"), here, saved[here], here, model);
  await assertFiles(folder, (content.files ?? []).map(({ name }) => name));
}
