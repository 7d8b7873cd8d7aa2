import type { ExplanationAnswer, ExplanationTerm, PlanChoice } from "@internevo/contracts";
import { alikeWords, planLabel, splitTerms, sumOfDifferences } from "@internevo/domain";
import { NativeSelect, Text } from "@mantine/core";
import { useState } from "react";
import { useExplanation, type Subject } from "../../data/advice.ts";
import type { PlanRow } from "../../data/plan-rows.ts";
import { formatBytes, formatSeconds, formatSecondsRange, formatSigned } from "../../text/format.ts";
import { lineName, TIME_WORDS } from "../../text/words.ts";
import { Body, Cell, Column, Head, Row, RowTitle, Table } from "../data-table.tsx";
import { Failed, Loading } from "../states.tsx";
import { Changes } from "./field-changes.tsx";

/** How far a term speaks for one of the two: to the left for A, to the right for B. */
function Balance({ difference, most }: { difference: number; most: number }) {
  const share = most > 0 ? (50 * Math.abs(difference)) / most : 0;
  return (
    <span className="balance" aria-hidden="true">
      {share > 0 && (
        <span
          className={difference > 0 ? "balance-a" : "balance-b"}
          style={{ width: `${share.toFixed(2)}%`, ...(difference > 0 ? { right: "50%" } : { left: "50%" }) }}
        />
      )}
    </span>
  );
}

interface TermsProps {
  readonly title: string;
  readonly terms: readonly ExplanationTerm[];
  readonly wordOf: (name: string) => string;
  readonly format: (value: number) => string;
}

const sumOf = (terms: readonly ExplanationTerm[], of: "a" | "b"): number =>
  terms.reduce((total, term) => total + term[of], 0);

/** Terms that are the same in both become one row. */
function Terms({ title, terms, wordOf, format }: TermsProps) {
  const { differing, alike } = splitTerms(terms, format);
  const most = Math.max(0, ...differing.map(({ difference }) => Math.abs(difference)));
  return (
    <div>
      {/* Cards have no head. */}
      <p className="terms-title" aria-hidden="true">
        {title}
      </p>
      <Table label={title} narrow="cards" className="terms-table">
        <Head>
          <Row>
            <Column>{title}</Column>
            <Column numeric>A</Column>
            <Column numeric>B</Column>
            <Column numeric>B − A</Column>
            <Column className="balance-head">A better · B better</Column>
          </Row>
        </Head>
        <Body>
          {differing.map(({ name, a, b, difference }) => (
            <Row key={name} name={name}>
              <RowTitle>{wordOf(name)}</RowTitle>
              <Cell label="A" numeric>
                {format(a)}
              </Cell>
              <Cell label="B" numeric>
                {format(b)}
              </Cell>
              <Cell label="B − A" numeric>
                {formatSigned(difference, format)}
              </Cell>
              <Cell className="balance-cell">
                <Balance difference={difference} most={most} />
              </Cell>
            </Row>
          ))}
          {alike.length > 0 && (
            <Row className="row-quiet" name="equal">
              <th role="rowheader" scope="row" className="card-title">
                {alikeWords(alike)}
                <div className="cell-note">{alike.map(({ name }) => wordOf(name)).join(", ")}</div>
              </th>
              <Cell label="A" numeric>
                {format(sumOf(alike, "a"))}
              </Cell>
              <Cell label="B" numeric>
                {format(sumOf(alike, "b"))}
              </Cell>
              <Cell label="B − A" numeric>
                {formatSigned(sumOfDifferences(alike), format)}
              </Cell>
              <Cell className="balance-cell">{""}</Cell>
            </Row>
          )}
          <Row className="row-sum">
            <RowTitle>Together</RowTitle>
            <Cell label="A" numeric>
              {format(sumOf(terms, "a"))}
            </Cell>
            <Cell label="B" numeric>
              {format(sumOf(terms, "b"))}
            </Cell>
            <Cell label="B − A" numeric>
              {formatSigned(sumOfDifferences(terms), format)}
            </Cell>
            <Cell className="balance-cell">{""}</Cell>
          </Row>
        </Body>
      </Table>
    </div>
  );
}

/** What the ranges of the two times say about the difference. */
function rangesText({ a, b }: ExplanationAnswer): string | undefined {
  const [one, two] = [a.predicted.stepTimeRangeSeconds, b.predicted.stepTimeRangeSeconds];
  if (!one || !two) return undefined;
  return `By the profile's spread A takes ${formatSecondsRange(one)}, B ${formatSecondsRange(two)}.`;
}

function whichDoesNotFit(aFits: boolean, bFits: boolean): string {
  if (aFits) return "B does not fit in memory.";
  return bFits ? "A does not fit in memory." : "Neither fits in memory.";
}

function Explained({ answer }: { answer: ExplanationAnswer }) {
  const ranges = rangesText(answer);
  return (
    <div className="answer">
      <Text fw={600}>{answer.summary}</Text>
      {ranges !== undefined && (
        <Text size="sm" c="dimmed">
          {ranges}
        </Text>
      )}
      {(!answer.a.fits || !answer.b.fits) && (
        <Text size="sm" className="text-bad">
          {whichDoesNotFit(answer.a.fits, answer.b.fits)}
        </Text>
      )}
      {answer.changes.length > 0 ? (
        <Changes label="From A to B" changes={answer.changes} />
      ) : (
        <Text size="sm">They are the same plan.</Text>
      )}
      <Text size="sm" c="dimmed">
        {answer.measured === null
          ? "All figures are predictions."
          : "The figures below are predictions: they say where the difference should come from."}
      </Text>
      <Terms
        title="Time of a step"
        terms={answer.time}
        wordOf={(name) => TIME_WORDS[name as keyof typeof TIME_WORDS] ?? lineName(name)}
        format={formatSeconds}
      />
      <Terms
        title="Memory of each plan's fullest rank"
        terms={answer.memory}
        wordOf={lineName}
        format={formatBytes}
      />
    </div>
  );
}

/** One plan beside another. */
export function Comparison({ subject, a, b }: { subject: Subject; a: PlanChoice; b: PlanChoice }) {
  const query = useExplanation(subject, a, b);
  if (query.data) return <Explained answer={query.data} />;
  return query.isError ? (
    <Failed what="comparison" error={query.error} onRetry={() => void query.refetch()} />
  ) : (
    <Loading label="comparison" rows={4} />
  );
}

/** Two of the plans, and why one takes longer than the other. */
export function ComparePlans({ rows, subject }: { rows: readonly PlanRow[]; subject: Subject }) {
  const first = rows.find(({ chosen }) => chosen)?.key ?? rows[0]?.key ?? "";
  const [a, setA] = useState(first);
  const [b, setB] = useState(rows.find(({ key }) => key !== first)?.key ?? first);
  const options = rows.map(({ key, rank, chosen, candidate }) => ({
    value: key,
    label: `#${rank}${chosen ? ", chosen" : ""}: ${planLabel(candidate.plan)}`,
  }));
  return (
    <>
      <div className="plan-pickers">
        <NativeSelect
          label="Plan A"
          data={options}
          value={a}
          onChange={(event) => setA(event.currentTarget.value)}
        />
        <NativeSelect
          label="Plan B"
          data={options}
          value={b}
          onChange={(event) => setB(event.currentTarget.value)}
        />
      </div>
      <Comparison
        subject={subject}
        a={rows.find(({ key }) => key === a)?.candidate.plan ?? a}
        b={rows.find(({ key }) => key === b)?.candidate.plan ?? b}
      />
    </>
  );
}
