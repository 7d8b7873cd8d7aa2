import type { Webhook } from "@internevo/contracts";
import { Badge } from "./state-badge.tsx";

/** Whether a webhook gets its events. */
export function WebhookBadge({ webhook }: { webhook: Webhook }) {
  if (!webhook.enabled) return <Badge tone="quiet">Disabled</Badge>;
  if (webhook.failingSince !== null) return <Badge tone="bad">Failing</Badge>;
  if (webhook.lastSuccessAt === null) return <Badge tone="waiting">Nothing sent yet</Badge>;
  return <Badge tone="good">Delivering</Badge>;
}
