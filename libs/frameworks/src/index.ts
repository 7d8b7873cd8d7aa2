export * from "./best-written.ts";
export { companionName } from "./companion.ts";
export * from "./convert.ts";
export {
  FRAMEWORKS,
  FRAMEWORK_VERSIONS,
  type ExportedConfiguration,
  type ExportedJob,
  type Framework,
  type FrameworkFile,
  type ImportedConfiguration,
  type Inexpressible,
  type Launch,
  type TakenAs,
} from "./framework.ts";
export * from "./written-prediction.ts";
