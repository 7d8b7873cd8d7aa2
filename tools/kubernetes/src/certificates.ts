import { execFileSync } from "node:child_process";
import { mkdirSync, readFileSync, writeFileSync } from "node:fs";
import { join } from "node:path";

/** Names of the services whose webhooks run outside of the cluster here. */
export const KUEUE_NAMESPACE = "kueue-system";
export const KUEUE_SERVICE = "kueue-webhook-service";
/** Kueue takes a CA for its own that names it so. */
const KUEUE_CA = "kueue-ca";
/** Kueue makes certificates anew that end within three months. */
const VALID_DAYS = "365";

export interface Certificates {
  readonly caPath: string;
  readonly ca: Buffer;
  readonly caKey: Buffer;
  readonly certificate: Buffer;
  readonly key: Buffer;
  readonly certificatePath: string;
  readonly keyPath: string;
  /** A folder with tls.crt and tls.key. */
  readonly directory: string;
  /** With which the API server signs tokens of service accounts. */
  readonly accountsKeyPath: string;
}

/** One CA of the stand's own, and one certificate for everything on this machine. */
export function makeCertificates(directory: string): Certificates {
  mkdirSync(directory, { recursive: true, mode: 0o700 });
  const at = (name: string): string => join(directory, name);
  const openssl = (...args: string[]): void =>
    void execFileSync("openssl", args, { stdio: ["ignore", "ignore", "pipe"] });
  // Kueue reads keys of this form only.
  const key = (path: string): void => openssl("genrsa", "-traditional", "-out", path, "2048");
  key(at("ca.key"));
  openssl(
    ...["req", "-x509", "-new", "-key", at("ca.key"), "-days", VALID_DAYS, "-out", at("ca.crt")],
    ...["-subj", `/O=kueue/CN=${KUEUE_CA}`, "-addext", `subjectAltName=DNS:${KUEUE_CA}`],
    ...["-addext", "basicConstraints=critical,CA:TRUE"],
    ...["-addext", "keyUsage=critical,digitalSignature,keyCertSign"],
  );
  key(at("tls.key"));
  openssl("req", "-new", "-key", at("tls.key"), "-subj", "/CN=internevo-test-cluster", "-out", at("tls.csr"));
  writeFileSync(
    at("extensions"),
    `subjectAltName=IP:127.0.0.1,DNS:localhost,DNS:${KUEUE_SERVICE}.${KUEUE_NAMESPACE}.svc\n` +
      "extendedKeyUsage=serverAuth,clientAuth\nkeyUsage=critical,digitalSignature,keyEncipherment\n",
  );
  openssl(
    ...["x509", "-req", "-in", at("tls.csr"), "-CA", at("ca.crt"), "-CAkey", at("ca.key")],
    ...["-CAcreateserial", "-days", VALID_DAYS, "-extfile", at("extensions"), "-out", at("tls.crt")],
  );
  key(at("accounts.key"));
  return {
    caPath: at("ca.crt"),
    ca: readFileSync(at("ca.crt")),
    caKey: readFileSync(at("ca.key")),
    certificate: readFileSync(at("tls.crt")),
    key: readFileSync(at("tls.key")),
    certificatePath: at("tls.crt"),
    keyPath: at("tls.key"),
    directory,
    accountsKeyPath: at("accounts.key"),
  };
}
