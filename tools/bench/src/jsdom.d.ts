/**
 * What the charts and their tests use of jsdom. Its published types bring the browser's global types into
 * every file of the workspace, where they contradict those of Node.
 */
declare module "jsdom" {
  export interface SvgElement {
    readonly tagName: string;
    readonly outerHTML: string;
    readonly textContent: string | null;
    getAttribute(name: string): string | null;
    setAttribute(name: string, value: string): void;
  }
  export interface SvgDocument {
    readonly documentElement: SvgElement;
    querySelector(selector: string): SvgElement | null;
    querySelectorAll(selector: string): Iterable<SvgElement> & { readonly length: number };
  }
  export class JSDOM {
    constructor(html: string, options?: { readonly contentType?: string });
    readonly window: { readonly document: SvgDocument };
  }
}
