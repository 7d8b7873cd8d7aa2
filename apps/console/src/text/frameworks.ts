import type { FrameworkName } from "@internevo/contracts";

export const FRAMEWORK_WORDS: Readonly<Record<FrameworkName, string>> = {
  internevo: "InternEvo",
  megatron: "Megatron-LM",
  deepspeed: "DeepSpeed",
  torchtitan: "torchtitan",
};

/** What a configuration of a framework is made of. */
export interface ConfigurationForm {
  /** The file that is read first. */
  readonly main: { readonly name: string; readonly about: string };
  /** A file that the first may name. */
  readonly beside?: { readonly name: string; readonly about: string };
}

export const CONFIGURATION_FORMS: Readonly<Record<FrameworkName, ConfigurationForm>> = {
  internevo: { main: { name: "config.py", about: "Python configuration" } },
  megatron: {
    main: { name: "pretrain.sh", about: "Shell script, or only the arguments of pretrain_gpt.py" },
  },
  deepspeed: {
    main: {
      name: "pretrain.sh",
      about: "Shell script, or only the arguments of Megatron-DeepSpeed’s pretrain_gpt.py",
    },
    beside: { name: "ds_config.json", about: "The JSON of --deepspeed_config" },
  },
  torchtitan: {
    main: { name: "train.toml", about: "TOML configuration" },
    beside: {
      name: "internevo_flavor.py",
      about:
        "The module of experimental.custom_import with the model’s sizes; empty where the flavor is one of torchtitan’s own",
    },
  },
};

/** The name by which a configuration calls the file beside it; its usual name where it says none. */
export function besideName(framework: FrameworkName, text: string): string | undefined {
  const { beside } = CONFIGURATION_FORMS[framework];
  if (beside === undefined) return undefined;
  const named =
    framework === "deepspeed" ? /--deepspeed_config[=\s]+["']?([^\s"']+)/.exec(text)?.[1] : undefined;
  return named ?? beside.name;
}

interface NamedText {
  readonly name: string;
  readonly text: string;
}

const extensionOf = (name: string): string => /\.([^./]+)$/.exec(name)?.[1]?.toLowerCase() ?? "";

/**
 * Which of the files that somebody picked is the configuration, and which one lies beside it: by their
 * extensions, else in their order.
 */
export function sortFiles(
  framework: FrameworkName,
  files: readonly NamedText[],
): { readonly main: NamedText | undefined; readonly beside: NamedText | undefined } {
  const { main: form, beside: companion } = CONFIGURATION_FORMS[framework];
  const beside = companion && files.find(({ name }) => extensionOf(name) === extensionOf(companion.name));
  const others = files.filter((file) => file !== beside);
  return {
    main: others.find(({ name }) => extensionOf(name) === extensionOf(form.name)) ?? others[0],
    beside,
  };
}

/** The line that says an option, from 1; undefined where none does: a fault may be of the whole file. */
export function lineOfOption(text: string, field: string): number | undefined {
  if (field === "file") return undefined;
  const option = /^--[\w-]+/.exec(field)?.[0] ?? /[\w-]+$/.exec(field)?.[0];
  if (option === undefined) return undefined;
  const at = text.split("\n").findIndex((line) => new RegExp(`(?<![\\w-])${option}(?![\\w-])`).test(line));
  return at < 0 ? undefined : at + 1;
}
