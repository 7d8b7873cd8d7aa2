// The lattice of plans: every legal combination of the factors that the executor runs, for a fixed global batch.
#pragma once

#include <string>
#include <vector>

#include "trainer/config.h"

namespace internevo::trainer::testing {

/// Every plan on `ranks` ranks for `sequences` sequences a step, that the model and sequence length allow; a third of those that do
/// not recompute all layers with gate and up made again, another third with them in the host's memory, each behind the same plan that keeps
/// them.
std::vector<PlanConfig> latticeOf(const Config& base, int ranks, std::int64_t sequences);

/// Every plan with each of the twelve policies of overlap.
std::vector<PlanConfig> withOverlaps(const std::vector<PlanConfig>& lattice);

/// The plan with those policies of overlap under which its stages do different things: one for each order of gathers,
/// reductions and lanes; that of no overlap is left out. Where nothing is shared by several ranks that is one.
std::vector<PlanConfig> overlapsOf(const Config& base, const PlanConfig& plan);

/// Which of `parts` parts a plan belongs to: plans that are compared with one another belong to the same. Plans are numbered
/// by their key (orderKeyOf) in the order of its first appearance.
std::vector<int> partsOf(const std::vector<PlanConfig>& plans, bool tiedEmbeddings, int parts);

/// A subset in which every pair of values of two factors that occurs in the lattice occurs too (greedy).
std::vector<PlanConfig> pairwiseSample(const std::vector<PlanConfig>& lattice);

/// "b2 n2 aall pp1 v1 dp2 tp1 sp2 c1 ps2 gs1 oss2 o00"; a: how many layers of a stage are recomputed, behind it g1 (g2) where gate and
/// up are made again,
/// o: forward and backward overlap (0 none, 1 block, 2 inter- or intra-layer)
std::string nameOf(const PlanConfig& plan);

/// Plans with equal keys add the same numbers in the same order, so that their results are equal bit by bit:
/// - the same rows go through the model in the same calls: equal dp, tp, sp, c, b, n; recomputation, also of gate
///   and up alone, repeats the same arithmetic, so it does not matter, nor do stages and chunks, which compute the same things elsewhere, nor overlap,
///   which computes them at another time;
/// - a gradient is summed over micro-batches on a rank and over ranks in one of these orders:
///     one micro-batch: only over ranks, and one tree over all of them is what every ps, gs, oss computes (sizes that are
///       powers of two);
///     gs > 1, or ps = R: every micro-batch over all ranks, then over micro-batches;
///     otherwise: every micro-batch inside the ps group, then over micro-batches, then over the replicas;
/// - with tied embeddings the shared table gets its gradient in two parts (head and embedding), which are summed like two
///   micro-batches even when there is one; with several stages each part is summed on its own end first.
std::string orderKeyOf(const PlanConfig& plan, bool tiedEmbeddings);

/// The same with bfloat16 gradients, whose sums are rounded where they are stored: besides, equal keys round the same sums. Ranks are
/// added in groups one behind the other (ps, oss, replicas), each rounded once. A gradient of a micro-batch is rounded by itself where
/// it is staged, else only in the sum with what was there.
std::string roundedOrderKeyOf(const PlanConfig& plan, bool tiedEmbeddings);

}  // namespace internevo::trainer::testing
