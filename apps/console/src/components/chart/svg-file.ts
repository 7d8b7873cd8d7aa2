const PADDING = 16;
const CAPTION = 22;
const VARIABLE = /var\((--[\w-]+)\)/g;

/** Colours of the page become colours of the file: a variable means nothing outside. */
function resolveColours(element: Element, look: CSSStyleDeclaration): void {
  for (const part of [element, ...element.querySelectorAll("*")]) {
    for (const { name, value } of [...part.attributes])
      if (VARIABLE.test(value))
        part.setAttribute(
          name,
          value.replace(VARIABLE, (_, variable: string) => look.getPropertyValue(variable).trim()),
        );
  }
}

/** All charts of a place on the page, one below the other, as one picture. Undefined where there are none. */
export function svgOf(place: Element, title: string): string | undefined {
  const charts = [...place.querySelectorAll<SVGSVGElement>(".xy-chart svg")].filter(
    (svg) => svg.parentElement?.closest("svg") === null,
  );
  if (charts.length === 0) return undefined;
  const look = getComputedStyle(place);
  const [ink, paper] = [
    look.getPropertyValue("--mantine-color-text").trim(),
    look.getPropertyValue("--surface").trim(),
  ];
  const namespace = "http://www.w3.org/2000/svg";
  const file = document.createElementNS(namespace, "svg");
  const width = Math.max(...charts.map((chart) => chart.width.baseVal.value)) + 2 * PADDING;
  let y = PADDING;
  const write = (text: string, size: number, weight: number): void => {
    const line = document.createElementNS(namespace, "text");
    line.setAttribute("x", String(PADDING));
    line.setAttribute("y", String(y + size));
    line.setAttribute("style", `font: ${weight} ${size}px ${look.fontFamily.replaceAll('"', "'")}`);
    line.setAttribute("fill", ink);
    line.textContent = text;
    file.append(line);
    y += CAPTION;
  };
  const background = document.createElementNS(namespace, "rect");
  file.append(background);
  write(title, 15, 600);
  for (const chart of charts) {
    write(chart.getAttribute("aria-label") ?? "", 12, 400);
    const copy = chart.cloneNode(true) as SVGSVGElement;
    resolveColours(copy, look);
    copy.setAttribute("x", String(PADDING));
    copy.setAttribute("y", String(y));
    copy.setAttribute("color", ink);
    copy.setAttribute("font-family", look.fontFamily.replaceAll('"', "'"));
    file.append(copy);
    y += chart.height.baseVal.value + PADDING;
  }
  for (const [name, value] of Object.entries({ viewBox: `0 0 ${width} ${y}`, width, height: y }))
    file.setAttribute(name, String(value));
  for (const [name, value] of Object.entries({ width, height: y, fill: paper }))
    background.setAttribute(name, String(value));
  return new XMLSerializer().serializeToString(file);
}
