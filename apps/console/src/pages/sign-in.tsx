import { API_PREFIX } from "@internevo/contracts";
import {
  Alert,
  Anchor,
  Button,
  Code,
  Divider,
  Paper,
  PasswordInput,
  Stack,
  Text,
  Title,
} from "@mantine/core";
import { useState, type FormEvent } from "react";
import { Brand } from "../components/brand.tsx";

interface SignInProps {
  readonly checking: boolean;
  readonly refusal: string | undefined;
  /** What the provider of identities is called, where there is one. */
  readonly provider: string | undefined;
  /** Where somebody who has just signed out here signs out of the provider too. */
  readonly providerUrl: string | undefined;
  readonly onToken: (token: string) => void;
  readonly onStop: () => void;
}

/** Leaves the page for the provider, which sends the browser back to where it was. */
function AtProvider({ provider, providerUrl }: { provider: string; providerUrl: string | undefined }) {
  const { pathname, search } = window.location;
  const begin = `${API_PREFIX}/sign-in/begin?returnTo=${encodeURIComponent(pathname + search)}`;
  return (
    <>
      <Button component="a" href={begin} autoFocus>
        Sign in with {provider}
      </Button>
      {providerUrl !== undefined && (
        <Text size="sm">
          You have signed out here. <Anchor href={providerUrl}>Sign out of {provider} too</Anchor>
        </Text>
      )}
      <Divider label="or with a token" />
    </>
  );
}

export function SignIn({ checking, refusal, provider, providerUrl, onToken, onStop }: SignInProps) {
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
            {provider === undefined && (
              <Text size="sm">
                InternEvo prints a token when it starts, and a link that signs you in. This browser keeps the
                token, for all its tabs, until you sign out.
              </Text>
            )}
            {refusal !== undefined && (
              <Alert color={checking ? "yellow" : "red"} role="alert">
                {refusal}
              </Alert>
            )}
            {provider !== undefined && <AtProvider provider={provider} providerUrl={providerUrl} />}
            <PasswordInput
              label="Token"
              name="token"
              autoComplete="off"
              required
              autoFocus={provider === undefined}
              value={token}
              onChange={(event) => setToken(event.currentTarget.value)}
              disabled={checking}
            />
            <Button
              type="submit"
              variant={provider === undefined ? "filled" : "default"}
              loading={checking && refusal === undefined}
              disabled={token.trim() === "" || checking}
            >
              {provider === undefined ? "Sign in" : "Sign in with the token"}
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
