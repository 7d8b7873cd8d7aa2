import "./styles/mantine.css";
import "uplot/dist/uPlot.min.css";
import "./styles/base.css";
import "./styles/data.css";
import "./styles/job.css";
import { localStorageColorSchemeManager, MantineProvider } from "@mantine/core";
import { QueryClientProvider } from "@tanstack/react-query";
import { RouterProvider } from "@tanstack/react-router";
import { StrictMode } from "react";
import { createRoot } from "react-dom/client";
import { createQueryClient } from "./data/queries.ts";
import { createConsoleRouter } from "./router.tsx";
import { SessionProvider } from "./session/session.tsx";
import { takeTokenFromFragment, willingly } from "./session/token.ts";
import { theme, variables } from "./theme.ts";

// Before the router reads the address. Only the API knows of a session by cookie: the page asks about that.
const handedOver = willingly(takeTokenFromFragment(window.location, window.history), false);

const root = document.getElementById("root");
if (!root) throw new Error("the page has no #root");

createRoot(root).render(
  <StrictMode>
    <MantineProvider
      theme={theme}
      cssVariablesResolver={variables}
      defaultColorScheme="auto"
      colorSchemeManager={localStorageColorSchemeManager({ key: "internevo.color-scheme" })}
    >
      <QueryClientProvider client={createQueryClient()}>
        <SessionProvider handedOver={handedOver}>
          <RouterProvider router={createConsoleRouter()} />
        </SessionProvider>
      </QueryClientProvider>
    </MantineProvider>
  </StrictMode>,
);
