import {
  ActionIcon,
  Burger,
  Group,
  Text,
  useComputedColorScheme,
  useMantineColorScheme,
} from "@mantine/core";
import { useDisclosure } from "@mantine/hooks";
import { Link, Outlet, useLocation } from "@tanstack/react-router";
import { useEffect, useRef, useState } from "react";
import { mayActAs, useSession } from "../session/session.tsx";
import { Brand } from "./brand.tsx";
import { ConnectionBanner } from "./connection-banner.tsx";

const PAGES = [
  { to: "/jobs", name: "Jobs" },
  { to: "/plan", name: "Plan" },
  { to: "/what-if", name: "What if" },
  { to: "/import", name: "Import" },
  { to: "/workloads", name: "Workloads" },
  { to: "/clusters", name: "Clusters" },
  { to: "/projects", name: "Projects" },
  { to: "/usage", name: "Usage" },
  { to: "/retention", name: "Retention" },
  { to: "/tokens", name: "Tokens", role: "admin" },
  { to: "/webhooks", name: "Webhooks", role: "admin" },
  { to: "/audit", name: "Audit", role: "admin" },
  { to: "/dead-letters", name: "Dead letters", role: "admin" },
] as const;

function Navigation({ onNavigate }: { onNavigate?: () => void }) {
  const session = useSession();
  return PAGES.filter((page) => !("role" in page) || mayActAs(session, page.role)).map(({ to, name }) => (
    <Link
      key={to}
      to={to}
      className="nav-link"
      activeProps={{ className: "nav-link nav-link-active", "aria-current": "page" }}
      {...(onNavigate ? { onClick: onNavigate } : {})}
    >
      {name}
    </Link>
  ));
}

function SunAndMoon() {
  const scheme = useComputedColorScheme("light");
  const { setColorScheme } = useMantineColorScheme();
  const other = scheme === "dark" ? "light" : "dark";
  return (
    <ActionIcon
      variant="subtle"
      color="gray"
      size="lg"
      aria-label={`Use ${other} colours`}
      onClick={() => setColorScheme(other)}
    >
      <svg width="18" height="18" viewBox="0 0 18 18" aria-hidden="true">
        <circle cx="9" cy="9" r="6.5" fill="none" stroke="currentColor" strokeWidth="1.5" />
        <path d="M9 2.5a6.5 6.5 0 0 1 0 13z" fill="currentColor" />
      </svg>
    </ActionIcon>
  );
}

/** Where else the person may act. */
function OtherPlaces() {
  const { client, project, places } = useSession();
  const [refusal, setRefusal] = useState<string>();
  const move = (to: string | null): void => {
    client
      .moveSession(to)
      // What was on the page may not be there.
      .then(() => window.location.assign("/"))
      .catch((error: unknown) => setRefusal(error instanceof Error ? error.message : String(error)));
  };
  return (
    <>
      {places
        .filter((place) => place.project !== project)
        .map((place) => (
          <button key={place.project ?? ""} type="button" onClick={() => move(place.project)}>
            Act as {place.role}{" "}
            {place.project === null ? "in the whole installation" : `in project ${place.project}`}
          </button>
        ))}
      {refusal !== undefined && <p role="alert">{refusal}</p>}
    </>
  );
}

/** Opened, closed and left by the browser itself. */
function Account() {
  const { name, role, project, kind, signOut } = useSession();
  const held = project === null ? role : `${role} in project ${project}`;
  return (
    <>
      <button
        type="button"
        className="account"
        popoverTarget="account"
        aria-label={`Signed in as ${name}, ${held}`}
      >
        <span className="account-initial" aria-hidden="true">
          {name.charAt(0).toUpperCase()}
        </span>
      </button>
      <div id="account" popover="auto" className="account-card" role="group" aria-label="Account">
        <p>
          {name} · {held}
        </p>
        {kind === "session" && <OtherPlaces />}
        <a href="/docs">API documentation</a>
        <button type="button" onClick={() => signOut()}>
          Sign out
        </button>
      </div>
    </>
  );
}

export function Layout() {
  const [opened, { toggle, close }] = useDisclosure();
  const { pathname } = useLocation();
  const main = useRef<HTMLElement>(null);
  const first = useRef(true);
  useEffect(() => {
    // A reader that follows the focus hears the new page; the first page keeps the browser's own order.
    if (!first.current) main.current?.focus({ preventScroll: true });
    first.current = false;
  }, [pathname]);
  return (
    <>
      <a
        className="skip-link"
        href="#main"
        onClick={(event) => {
          event.preventDefault();
          main.current?.focus();
        }}
      >
        Skip to the content
      </a>
      <header className="header">
        <div className="header-inner">
          <Group gap="md" wrap="nowrap">
            <Burger
              hiddenFrom="lg"
              size="sm"
              opened={opened}
              onClick={toggle}
              aria-label={opened ? "Close the menu" : "Open the menu"}
              aria-expanded={opened}
              aria-controls="menu"
            />
            <Link to="/jobs" className="brand-link" aria-label="InternEvo, jobs">
              <Brand />
            </Link>
            <nav aria-label="Main" className="nav-wide">
              <Navigation />
            </nav>
          </Group>
          <Group gap={4} wrap="nowrap">
            <SunAndMoon />
            <Account />
          </Group>
        </div>
        {opened && (
          <nav id="menu" aria-label="Main" className="nav-narrow">
            <Navigation onNavigate={close} />
          </nav>
        )}
      </header>
      <main id="main" ref={main} tabIndex={-1} className="main">
        <ConnectionBanner />
        <Outlet />
        <Text component="footer" size="xs" c="dimmed" className="footer">
          InternEvo plans, tries and trains long-sequence language models.
        </Text>
      </main>
    </>
  );
}
