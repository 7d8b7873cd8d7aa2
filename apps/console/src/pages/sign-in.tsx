import { Alert, Button, Code, Paper, PasswordInput, Stack, Text, Title } from "@mantine/core";
import { useState, type FormEvent } from "react";
import { Brand } from "../components/brand.tsx";

interface SignInProps {
  readonly checking: boolean;
  readonly refusal: string | undefined;
  readonly onToken: (token: string) => void;
  readonly onStop: () => void;
}

export function SignIn({ checking, refusal, onToken, onStop }: SignInProps) {
  const [token, setToken] = useState("");
  const submit = (event: FormEvent): void => {
    event.preventDefault();
    if (token.trim() !== "") onToken(token.trim());
  };
  return (
    <main className="sign-in">
      <Paper withBorder p="xl" radius="md" w="100%" maw={420}>
        <form onSubmit={submit}>
          <Stack gap="md">
            <Brand />
            <Title order={1} size="h4">
              Sign in
            </Title>
            <Text size="sm">
              InternEvo prints a token when it starts, and a link that signs you in. This browser keeps the
              token, for all its tabs, until you sign out.
            </Text>
            {refusal !== undefined && (
              <Alert color={checking ? "yellow" : "red"} role="alert">
                {refusal}
              </Alert>
            )}
            <PasswordInput
              label="Token"
              name="token"
              autoComplete="off"
              required
              autoFocus
              value={token}
              onChange={(event) => setToken(event.currentTarget.value)}
              disabled={checking}
            />
            <Button
              type="submit"
              loading={checking && refusal === undefined}
              disabled={token.trim() === "" || checking}
            >
              Sign in
            </Button>
            {checking && refusal !== undefined && (
              <Button variant="default" onClick={onStop}>
                Use another token
              </Button>
            )}
            <Text size="xs" c="dimmed">
              No token at hand? On the machine where InternEvo runs, <Code>npx internevo status</Code> prints
              the link. On a shared installation, ask its administrator for a token.
            </Text>
          </Stack>
        </form>
      </Paper>
    </main>
  );
}
