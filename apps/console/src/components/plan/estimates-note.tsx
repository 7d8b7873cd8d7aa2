import { estimatesWords, type Estimates } from "@internevo/domain";
import { Text } from "@mantine/core";

/** Which of the figures above are estimates, and what measures them; nothing where all is measured. */
export function EstimatesNote({ estimates }: { estimates: Estimates | undefined }) {
  if (estimates === undefined) return null;
  return (
    <Text size="sm" mt="xs" className="lines" data-note="estimates">
      {estimatesWords(estimates)}
    </Text>
  );
}
