import { createHmac } from "node:crypto";
import { SECRET_PREFIX } from "@internevo/store";

/** What is signed: the same id and payload at another time have another signature. */
export interface SignedParts {
  readonly id: string;
  readonly atSeconds: number;
  readonly payload: string;
}

/** The headers of a request as Standard Webhooks asks for them. @param secret as it was shown */
export function signatureHeaders(
  secret: string,
  { id, atSeconds, payload }: SignedParts,
): Record<string, string> {
  const key = Buffer.from(secret.slice(SECRET_PREFIX.length), "base64");
  const signature = createHmac("sha256", key).update(`${id}.${atSeconds}.${payload}`).digest("base64");
  return { "webhook-id": id, "webhook-timestamp": String(atSeconds), "webhook-signature": `v1,${signature}` };
}
