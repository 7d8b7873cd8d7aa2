import { ROLES, type CreatedToken, type Role, type TokenKind, type TokenRecord } from "@internevo/contracts";
import { Alert, Button, Group, NativeSelect, TextInput } from "@mantine/core";
import { useDisclosure } from "@mantine/hooks";
import { useMutation, useQueryClient } from "@tanstack/react-query";
import { useState } from "react";
import { Dialog } from "../components/dialog.tsx";
import { ConfirmedButton } from "../components/confirmed-button.tsx";
import { Body, Cell, Column, Head, Row, RowTitle, Table } from "../components/data-table.tsx";
import { Moment } from "../components/moment.tsx";
import { MoreButton } from "../components/more-button.tsx";
import { Page } from "../components/page.tsx";
import { ProjectField } from "../components/project-field.tsx";
import { ShownOnce } from "../components/shown-once.tsx";
import { Empty, Listed } from "../components/states.tsx";
import { useTokens } from "../data/queries.ts";
import { isOfInstallation, useSession } from "../session/session.tsx";

const DAY_SECONDS = 86_400;
const VALIDITIES = [
  { value: String(30 * DAY_SECONDS), label: "30 days" },
  { value: String(90 * DAY_SECONDS), label: "90 days" },
  { value: String(365 * DAY_SECONDS), label: "A year" },
  { value: "", label: "Until it is revoked" },
];
const ROLE_WORDS: Readonly<Record<Role, string>> = {
  viewer: "Viewer: sees all jobs there, changes nothing",
  operator: "Operator: submits and cancels jobs too",
  admin: "Admin: gives access too",
};

const KIND_WORDS: Readonly<Record<TokenKind, string>> = {
  token: "Token",
  session: "Browser",
  login: "Command line",
};

function CreateForm({ onMade, onClose }: { onMade: (made: CreatedToken) => void; onClose: () => void }) {
  const session = useSession();
  const { client } = session;
  const queries = useQueryClient();
  const [name, setName] = useState("");
  const [project, setProject] = useState("");
  const [role, setRole] = useState<Role>("viewer");
  const [validity, setValidity] = useState(VALIDITIES[1]?.value ?? "");
  const create = useMutation({
    mutationFn: () =>
      client.createToken({
        name: name.trim(),
        role,
        ...(project === "" ? {} : { project }),
        ...(validity === "" ? {} : { validForSeconds: Number(validity) }),
      }),
    onSuccess: async (made) => {
      await queries.invalidateQueries({ queryKey: ["tokens"] });
      onMade(made);
    },
  });
  return (
    <form
      onSubmit={(event) => {
        event.preventDefault();
        create.mutate();
      }}
    >
      <TextInput
        label="Name"
        description="Who or what uses it. Jobs and the audit log show this name."
        value={name}
        maxLength={100}
        onChange={(event) => setName(event.currentTarget.value)}
        data-autofocus
        required
      />
      <NativeSelect
        mt="sm"
        label="Role"
        value={role}
        onChange={(event) => setRole(event.currentTarget.value as Role)}
        data={ROLES.map((each) => ({ value: each, label: ROLE_WORDS[each] }))}
      />
      {isOfInstallation(session) && (
        <ProjectField
          label="Where"
          description="Of other projects it sees nothing."
          everywhere="In the whole installation"
          project={project}
          onChange={setProject}
        />
      )}
      <NativeSelect
        mt="sm"
        label="Valid for"
        value={validity}
        onChange={(event) => setValidity(event.currentTarget.value)}
        data={VALIDITIES}
      />
      {create.isError && (
        <Alert color="red" mt="sm" role="alert">
          {create.error.message}
        </Alert>
      )}
      <Group justify="flex-end" mt="md">
        <Button variant="default" onClick={onClose}>
          Close
        </Button>
        <Button type="submit" loading={create.isPending} disabled={name.trim() === ""}>
          Create the token
        </Button>
      </Group>
    </form>
  );
}

function Revoke({ token }: { token: TokenRecord }) {
  const { client } = useSession();
  const queries = useQueryClient();
  return (
    <ConfirmedButton
      label="Revoke"
      name={token.name}
      question={`Revoke ${token.name}?`}
      consequence="Whoever uses this token is refused from then on. Its jobs go on."
      keep="Keep it"
      confirm="Revoke the token"
      onConfirm={async () => {
        await client.revokeToken(token.id);
        await queries.invalidateQueries({ queryKey: ["tokens"] });
      }}
    />
  );
}

function TokenRow({ token }: { token: TokenRecord }) {
  return (
    <Row name={token.id}>
      <RowTitle>{token.name}</RowTitle>
      <Cell label="Kind">{KIND_WORDS[token.kind]}</Cell>
      <Cell label="Role">{token.role}</Cell>
      <Cell label="Project">{token.project ?? <span className="nothing">all</span>}</Cell>
      <Cell label="Created">
        <Moment at={token.createdAt} />
      </Cell>
      <Cell label="Last used">
        {token.lastUsedAt === null ? (
          <span className="nothing">never</span>
        ) : (
          <Moment at={token.lastUsedAt} />
        )}
      </Cell>
      <Cell label="Expires">
        {token.expiresAt === null ? (
          <span className="nothing">when revoked</span>
        ) : (
          <Moment at={token.expiresAt} both />
        )}
      </Cell>
      <Cell label="">
        <Revoke token={token} />
      </Cell>
    </Row>
  );
}

export function TokensPage() {
  const query = useTokens();
  const [opened, { open, close }] = useDisclosure();
  const [made, setMade] = useState<CreatedToken>();
  const tokens = query.data?.pages.flatMap(({ items }) => items) ?? [];
  return (
    <Page
      title="Tokens"
      lead="Who may use the API, the command line and this console."
      actions={<Button onClick={open}>Create a token</Button>}
    >
      {made && (
        <ShownOnce
          title={`${made.name} may use the API as ${made.role}${made.project === null ? "" : ` in project ${made.project}`}`}
          what="token"
          secret={made.token}
          onClose={() => setMade(undefined)}
        />
      )}
      <Dialog opened={opened} onClose={close} title="Create a token">
        <CreateForm
          onMade={(token) => {
            setMade(token);
            close();
          }}
          onClose={close}
        />
      </Dialog>
      <Listed
        query={query}
        what="tokens"
        isEmpty={tokens.length === 0}
        empty={<Empty title="No tokens">{null}</Empty>}
      >
        <Table label="Tokens" narrow="cards">
          <Head>
            <Row>
              <Column>Name</Column>
              <Column>Kind</Column>
              <Column>Role</Column>
              <Column>Project</Column>
              <Column>Created</Column>
              <Column>Last used</Column>
              <Column>Expires</Column>
              <Column>
                <span className="visually-hidden">Actions</span>
              </Column>
            </Row>
          </Head>
          <Body>
            {tokens.map((token) => (
              <TokenRow key={token.id} token={token} />
            ))}
          </Body>
        </Table>
        <MoreButton query={query} />
      </Listed>
    </Page>
  );
}
