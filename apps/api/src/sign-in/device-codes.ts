import { createHash, createHmac, timingSafeEqual } from "node:crypto";
import { ProblemError } from "@internevo/domain";
import type { SignInSettings } from "./settings.ts";

/** `EXPIRY.SIGNATURE.CODE`: when it runs out in seconds, in base 36; a SHA-256 in base64url; the provider's code. */
const FORM = /^([0-9a-z]{1,11})\.([\w-]{43})\.(.+)$/s;

const notHandedOut = (message: string): ProblemError =>
  new ProblemError("unauthorized", `the device code ${message}`, [
    {
      field: "deviceCode",
      message,
      remedy: "begin again: POST /api/v1/sign-in/device, or `internevo login`",
    },
  ]);

/**
 * Device codes as they are handed out: signed, so that the provider is asked about no others, and nothing is stored.
 * The key follows from the client's settings, so that every instance of the API knows the codes of the others. A
 * public client has no secret: its codes can be made up, and whoever does so can ask the provider directly too.
 */
export class DeviceCodes {
  readonly #key: Buffer;
  readonly #now: () => Date;

  constructor(
    { issuer, clientId, clientSecret }: Pick<SignInSettings, "issuer" | "clientId" | "clientSecret">,
    now: () => Date = () => new Date(),
  ) {
    const what = JSON.stringify(["internevo device codes", issuer.href, clientId, clientSecret ?? null]);
    this.#key = createHash("sha256").update(what).digest();
    this.#now = now;
  }

  #signatureOf(expiry: string, code: string): string {
    return createHmac("sha256", this.#key).update(`${expiry}.${code}`).digest("base64url");
  }

  /** @param code the provider's, which runs out after so long */
  signed(code: string, seconds: number): string {
    const expiry = Math.ceil(this.#now().getTime() / 1000 + seconds).toString(36);
    return `${expiry}.${this.#signatureOf(expiry, code)}.${code}`;
  }

  /** The provider's code. @throws ProblemError `unauthorized` for one that was not handed out, or has run out */
  codeOf(signed: string): string {
    const [, expiry, signature, code] = FORM.exec(signed) ?? [];
    if (expiry === undefined || signature === undefined || code === undefined)
      throw notHandedOut("is none that this installation handed out");
    // Both are 43 characters of one byte.
    if (!timingSafeEqual(Buffer.from(signature), Buffer.from(this.#signatureOf(expiry, code))))
      throw notHandedOut("is none that this installation handed out");
    if (Number.parseInt(expiry, 36) * 1000 < this.#now().getTime()) throw notHandedOut("has run out");
    return code;
  }
}
