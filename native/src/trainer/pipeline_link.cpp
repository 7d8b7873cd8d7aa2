#include "trainer/pipeline_link.h"

#include "trainer/failure.h"
#include "trainer/parameter_store.h"

namespace internevo::trainer {

namespace {
/// Micro-batches whose messages may be under way together are far fewer.
constexpr std::int64_t kTaggedMicroBatches = 8;
/// Looking takes some microseconds: a small part of this, in which a fast socket takes one fragment of a message.
constexpr std::chrono::microseconds kBetweenLooks{500};
}  // namespace

PipelineLink::PipelineLink(const Config& config, const Layout& layout, const MemoryPlan& plan, Arena& arena,
                           MemorySpace& memory, GroupSet& groups, std::vector<PipelineOperation> operations)
    : stage_(layout.position().stage),
      stages_(config.plan.pipelineParallel),
      elements_(localShape(config).rows * config.model.hiddenSize),
      chunks_(config.plan.pipelineChunks),
      memory_(memory),
      groups_(groups) {
  for (const PipelineOperation& operation : operations) {
    if (receives(operation, stage_, stages_, config.plan.pipelineChunks)) {
      of(operation.pass).expected.push_back(operation);
    }
  }
  const auto view = [&](const Piece& piece) { return viewOf(arena, piece, config.precision); };
  of(Pass::forward).outgoing = view(plan.sendForward), of(Pass::forward).incoming = view(plan.receiveForward);
  of(Pass::backward).outgoing = view(plan.sendBackward),
  of(Pass::backward).incoming = view(plan.receiveBackward);
}

int PipelineLink::tagOf(const PipelineOperation& o) const {
  const std::int64_t place = o.microBatch % kTaggedMicroBatches * chunks_ + o.chunk;
  return static_cast<int>(2 * place + (o.pass == Pass::forward ? 0 : 1));
}

void PipelineLink::startReceive(Pass pass) {
  Direction& direction = of(pass);
  if (direction.next == direction.expected.size()) return;
  const int from = (stage_ + (pass == Pass::forward ? stages_ - 1 : 1)) % stages_;
  require(groups_.pipeline.startReceive(direction.incoming, elements_, from,
                                        tagOf(direction.expected[direction.next]), &direction.receiving));
}

void PipelineLink::begin(bool onlyForward) {
  for (const Pass pass : {Pass::forward, Pass::backward}) {
    if (onlyForward && pass == Pass::backward) continue;
    of(pass).next = 0;
    startReceive(pass);
  }
}

void PipelineLink::receive(const PipelineOperation& operation, View target) {
  Direction& direction = of(operation.pass);
  if (direction.next >= direction.expected.size() || direction.expected[direction.next] != operation) {
    throw Failure(StatusCode::internal,
                  "a pipeline stage took its messages in another order than its schedule's");
  }
  {
    const Exposed bubble(groups_, "wait for the stage before or after", -1, &groups_.bubbleSeconds);
    require(Communicator::finish(&direction.receiving));
  }
  require(memory_.copy(target.data, direction.incoming.data, elements_ * bytesPerElement(target.type)));
  ++direction.next;
  startReceive(operation.pass);
}

View PipelineLink::sendBuffer(Pass pass) {
  const Exposed exposed(groups_, "wait until a message is taken");
  require(Communicator::finish(&of(pass).sending));
  return of(pass).outgoing;
}

void PipelineLink::send(const PipelineOperation& operation) {
  const int to = (stage_ + (operation.pass == Pass::forward ? 1 : stages_ - 1)) % stages_;
  require(groups_.pipeline.startSend(of(operation.pass).outgoing, elements_, to,
                                     tagOf(receiverOf(operation, stage_, stages_)),
                                     &of(operation.pass).sending));
}

void PipelineLink::advance() {
  const auto now = std::chrono::steady_clock::now();
  if (now - advancedAt_ < kBetweenLooks) return;
  advancedAt_ = now;
  for (Direction& direction : directions_) {
    require(Communicator::advance(&direction.receiving));
    require(Communicator::advance(&direction.sending));
  }
}

void PipelineLink::finish() {
  const Exposed exposed(groups_, "wait until a message is taken");
  for (Direction& direction : directions_) require(Communicator::finish(&direction.sending));
}

}  // namespace internevo::trainer
