import { SERIES_COLOURS, SERIES_INK } from "@internevo/domain";
import { createTheme, type CSSVariablesResolver, type MantineColorsTuple } from "@mantine/core";

const evo: MantineColorsTuple = [
  "#e8f6f6",
  "#d2ebec",
  "#a3d6d9",
  "#71bfc4",
  "#4aacb2",
  "#2f9ba2",
  "#178a91",
  "#0b6e75",
  "#085c62",
  "#03464b",
];

/** Greys of the dark scheme with the tint of its background. */
const dark: MantineColorsTuple = [
  "#dde3e9",
  "#b4bcc5",
  "#98a2ac",
  "#66717d",
  "#414b56",
  "#303943",
  "#20272f",
  "#14181d",
  "#0f1317",
  "#0a0d10",
];

const mono =
  'ui-monospace, "SF Mono", "Cascadia Mono", "JetBrains Mono", Menlo, Consolas, "DejaVu Sans Mono", monospace';

export const theme = createTheme({
  colors: { evo, dark },
  primaryColor: "evo",
  primaryShade: { light: 7, dark: 7 },
  fontFamily:
    'system-ui, -apple-system, "Segoe UI", Roboto, "Helvetica Neue", "Noto Sans", "DejaVu Sans", sans-serif',
  fontFamilyMonospace: mono,
  headings: {
    fontWeight: "620",
    sizes: {
      h1: { fontSize: "1.375rem", lineHeight: "1.3" },
      h2: { fontSize: "1.0625rem", lineHeight: "1.35" },
      h3: { fontSize: "0.9375rem", lineHeight: "1.4" },
    },
  },
  defaultRadius: "sm",
  cursorType: "pointer",
  focusRing: "auto",
  respectReducedMotion: true,
});

/** Colours of series, which pictures of the command line have too. */
const series = (mode: "light" | "dark"): Record<`--${string}`, string> => ({
  ...Object.fromEntries(SERIES_COLOURS[mode].map((colour, index) => [`--series-${index + 1}`, colour])),
  "--series-ink": SERIES_INK[mode],
});

/** Mantine's dimmed text and placeholders are below the contrast that WCAG AA asks for. */
export const variables: CSSVariablesResolver = () => ({
  variables: {},
  light: {
    ...series("light"),
    "--mantine-color-dimmed": "#5c6670",
    "--mantine-color-placeholder": "#68727c",
    "--mantine-color-body": "#ffffff",
    "--mantine-color-text": "#16202a",
  },
  dark: {
    ...series("dark"),
    "--mantine-color-dimmed": "#a2abb5",
    "--mantine-color-placeholder": "#98a2ac",
    "--mantine-color-body": "#14181d",
    "--mantine-color-text": "#dde3e9",
  },
});
