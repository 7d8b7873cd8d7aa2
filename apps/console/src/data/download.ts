/** Hands a file to whoever looks at the page. */
export function download(name: string, content: Blob): void {
  const url = URL.createObjectURL(content);
  const link = document.createElement("a");
  link.href = url;
  link.download = name;
  link.click();
  // The browser has taken hold of it by then.
  setTimeout(() => URL.revokeObjectURL(url), 10_000);
}

export const downloadText = (name: string, text: string, type = "text/plain"): void =>
  download(name, new Blob([text], { type: `${type};charset=utf-8` }));

/** A name that every file system takes. */
export const fileName = (text: string): string =>
  text
    .replace(/[^\w.-]+/g, "-")
    .replace(/^[-.]+|[-.]+$/g, "")
    .slice(0, 100) || "plan";
