export {
  assertMayBeData,
  dataRootsOf,
  folderThatHolds,
  type DataPlaces,
  type DataRoots,
  type Judge,
  type WeightsPlaces,
} from "./data-roots.ts";
export { assertLeadsStill } from "./handed-over.ts";
export { assertWeightsLeadStill, handOverWeights } from "./handed-weights.ts";
export { assertHeldOut } from "./held-out.ts";
export { isWrittenAsFolder, weightsWarnings } from "./hugging-face.ts";
export * from "./initial-weights.ts";
export { WEIGHTS_FIELD } from "./weights-fault.ts";
export {
  BYTES_PER_TEXT_TOKEN,
  diskOf,
  LEAVE_FREE,
  marginBytes,
  textRoomFault,
  type Disk,
} from "./disk-room.ts";
export { openData, type Reading } from "./open-data.ts";
export {
  countPackedDocuments,
  FULLY_READ_BYTES,
  type CountedDocuments,
  type DocumentTask,
} from "./packed-documents.ts";
export {
  assertFitsSequences,
  assertRoomForDocuments,
  BYTE_VOCABULARY_SIZE,
  DatasetSchema,
  datasetsDirectory,
  assertHoldsBatches,
  prepareData,
  prepareDataset,
  removeAbandonedDatasets,
  removeUnusedDatasets,
  type Dataset,
  type PreparedData,
  type PrepareOptions,
} from "./prepare.ts";
export { assertKnowsDocuments, openSource, type TokenData } from "./source.ts";
export { unigramEntropyNats } from "./token-reader.ts";
export { documentsByte, encodeHeader, TOKEN_FILE, type TokenFileHeader } from "./token-file.ts";
export type { TokenSource } from "./token-source.ts";
export { DATASET_DAYS, type DatasetUser, type Unended } from "./dataset-use.ts";
