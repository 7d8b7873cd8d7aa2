import { SWEPT_AXES, type SweptAxis } from "@internevo/contracts";
import { parseQuantity } from "@internevo/domain";
import { NativeSelect, NumberInput, Text, TextInput } from "@mantine/core";
import { axisValues } from "../../text/axis-values.ts";
import { AXIS_WORDS, type QuestionKind } from "./questions.ts";

/** What the fields hold, whichever of them are shown. */
export interface Asked {
  readonly axis: SweptAxis;
  /** As written; null: nothing was, and what suits the job is asked. */
  readonly values: string | null;
  /** Null: nothing was given, as above. */
  readonly unitTokens: number | string | null;
  readonly sequences: number | string;
  /** As written: 2T, 300B. */
  readonly tokens: string;
  readonly days: number | string;
  readonly price: number | string;
  readonly nodes: string;
}

/** What the fields show: what nobody wrote is filled in. */
export type Filled = Asked & { readonly values: string; readonly unitTokens: number | string };

export const ASKED_FIRST: Asked = {
  axis: "sequence",
  values: null,
  unitTokens: null,
  sequences: 1,
  tokens: "1T",
  days: 30,
  price: "",
  nodes: "",
};

/** Tokens of a whole training; undefined where the text is no such number. */
export function trainingTokens(text: string): number | undefined {
  const tokens = parseQuantity(text, "trainingTokens");
  return tokens === 0 ? undefined : tokens;
}

/** What keeps the question from being asked; undefined: nothing. */
export function faultOf(
  kind: QuestionKind,
  asked: Filled,
): { readonly field: keyof Asked; readonly message: string } | undefined {
  const number = (field: keyof Asked): { field: keyof Asked; message: string } | undefined =>
    typeof asked[field] === "number" && asked[field] > 0
      ? undefined
      : { field, message: "Give a number above 0" };
  if (kind === "sweep") {
    const read = axisValues(asked.axis, asked.values);
    return "fault" in read ? { field: "values", message: read.fault } : undefined;
  }
  if (kind === "largest") return number("unitTokens") ?? number("sequences");
  if (kind === "pareto") return undefined;
  const sizes = asked.nodes.trim() === "" ? undefined : axisValues("nodes", asked.nodes);
  return (
    (trainingTokens(asked.tokens) === undefined
      ? { field: "tokens", message: "Give a number of tokens, such as 2T or 300B" }
      : undefined) ??
    number("days") ??
    (sizes && "fault" in sizes ? { field: "nodes", message: sizes.fault } : undefined)
  );
}

interface FieldsProps {
  /** Why the values are there, where nobody wrote them. */
  readonly whyValues: string | undefined;
  readonly kind: QuestionKind;
  readonly asked: Filled;
  readonly onChange: (changes: Partial<Asked>) => void;
  /** Shown once somebody tried to ask. */
  readonly fault: ReturnType<typeof faultOf>;
}

type PartProps = Pick<FieldsProps, "asked" | "onChange"> & {
  readonly errorOf: (field: keyof Asked) => string | undefined;
};

export function QuestionFields({ kind, asked, onChange, fault, whyValues }: FieldsProps) {
  const errorOf = (field: keyof Asked): string | undefined =>
    fault?.field === field ? fault.message : undefined;
  const part = { asked, onChange, errorOf };
  if (kind === "sweep") return <SweepFields {...part} whyValues={whyValues} />;
  if (kind === "largest") return <LargestFields {...part} />;
  return kind === "pareto" ? null : <ClusterFields {...part} />;
}

function SweepFields({ asked, onChange, errorOf, whyValues }: PartProps & Pick<FieldsProps, "whyValues">) {
  return (
    <>
      <div className="fields">
        <NativeSelect
          label="Axis"
          description={`What is varied: ${AXIS_WORDS[ASKED_FIRST.axis].name.toLowerCase()} unless you choose`}
          value={asked.axis}
          data={SWEPT_AXES.map((value) => ({ value, label: AXIS_WORDS[value].name }))}
          onChange={(event) => {
            const axis = event.currentTarget.value as SweptAxis;
            onChange({ axis, values: null });
          }}
        />
        <TextInput
          label="Values"
          description={`${AXIS_WORDS[asked.axis].about}; a..b doubles from a to b`}
          value={asked.values}
          onChange={(event) => onChange({ values: event.currentTarget.value })}
          error={errorOf("values")}
          className="grow"
          spellCheck={false}
          autoComplete="off"
        />
      </div>
      {whyValues !== undefined && (
        <Text size="sm" c="dimmed">
          {whyValues}
        </Text>
      )}
    </>
  );
}

function LargestFields({ asked, onChange, errorOf }: PartProps) {
  return (
    <div className="fields">
      <NumberInput
        label="Multiple of"
        description="Tokens"
        min={1}
        allowDecimal={false}
        thousandSeparator=","
        value={asked.unitTokens}
        onChange={(unitTokens) => onChange({ unitTokens })}
        error={errorOf("unitTokens")}
      />
      <NumberInput
        label="Sequences"
        description="Of a step"
        min={1}
        allowDecimal={false}
        value={asked.sequences}
        onChange={(sequences) => onChange({ sequences })}
        error={errorOf("sequences")}
      />
    </div>
  );
}

function ClusterFields({ asked, onChange, errorOf }: PartProps) {
  return (
    <div className="fields">
      <TextInput
        label="Tokens to train on"
        description="Such as 2T or 300B"
        value={asked.tokens}
        onChange={(event) => onChange({ tokens: event.currentTarget.value })}
        error={errorOf("tokens")}
        spellCheck={false}
        autoComplete="off"
      />
      <NumberInput
        label="Deadline"
        description="In days"
        min={0}
        value={asked.days}
        onChange={(days) => onChange({ days })}
        error={errorOf("days")}
      />
      <NumberInput
        label="Price"
        description="Of a GPU hour; optional"
        min={0}
        value={asked.price}
        onChange={(price) => onChange({ price })}
      />
      <TextInput
        label="Nodes"
        description="Empty: up to the job’s"
        placeholder="8, 16, 32"
        value={asked.nodes}
        onChange={(event) => onChange({ nodes: event.currentTarget.value })}
        error={errorOf("nodes")}
        spellCheck={false}
        autoComplete="off"
      />
    </div>
  );
}
