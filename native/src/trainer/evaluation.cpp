#include "trainer/evaluation.h"

#include <cmath>
#include <functional>

#include "trainer/clock.h"
#include "trainer/failure.h"
#include "trainer/trainer.h"

namespace internevo::trainer {

bool evaluatesAt(const Config& config, std::int64_t step) {
  return config.validation && (step % config.validation->everySteps == 0 || step == config.steps);
}

void openValidationData(const Config& config, TokenFile* data) {
  if (!config.validation) return;
  const ValidationConfig& v = *config.validation;
  readingValidationData(
      [&] { data->open(v.data, config.model.vocabularySize, config.sequenceLengthTokens); });
  const std::int64_t each = config.plan.globalBatchSequences(), there = data->sequenceCount();
  if (v.batches <= there / each) return;
  const std::string value = std::to_string(v.batches);
  throw Failure(Problem{
      StatusCode::dataError,
      "token file " + v.data.path + " has " + std::to_string(there) + " sequences of " +
          std::to_string(config.sequenceLengthTokens) + " tokens; validation.batches " + value +
          " of the global batch of " + std::to_string(each) + " sequences need more",
      "validation.batches", value,
      there < each ? "give more held-out data, or a smaller global batch"
                   : "give more held-out data, or at most " + std::to_string(there / each) + " batches"});
}

namespace {

/// While an evaluation lasts, no timeline is recorded: what it shows is the steps.
class WithoutTimeline {
 public:
  explicit WithoutTimeline(Activity& activity) : activity_(activity), recorded_(activity.recording()) {
    activity_.record(false);
  }
  ~WithoutTimeline() { activity_.record(recorded_); }
  WithoutTimeline(const WithoutTimeline&) = delete;
  WithoutTimeline& operator=(const WithoutTimeline&) = delete;

 private:
  Activity& activity_;
  const bool recorded_;
};

}  // namespace

/// The sequences of held-out batch `batch`, in which a bad token is an error that all ranks learn of before anything is computed.
std::int64_t Trainer::checkValidationData(std::int64_t batch) {
  return checkBatch([&](std::int64_t microBatch) {
    readingValidationData([&] { reader_->readInOrder(validationData_, batch, microBatch); });
  });
}

ExactSum Trainer::evaluateBatch(std::int64_t batch) {
  ExactSum losses;
  parameters_->beginBatch();
  model_->beginEvaluation();
  for (const PipelineOperation& operation : model_->evaluationOperations()) {
    if (model_->evaluationNeedsData(operation))
      reader_->readInOrder(validationData_, batch, operation.microBatch);
    model_->evaluate(operation, &losses);
  }
  model_->endStep();
  groups_.microBatch = -1;
  parameters_->endBatch();
  require(backend_->settle());
  require(groups_.activity->settle(&besideSeconds_));
  const Exposed exposed(groups_, "all-reduce validation loss");
  require(groups_.world.allReduce({&losses, DataType::int64}, ExactSum::kWords, ReduceOperation::sum,
                                  reduceWorkspace_));
  return losses;
}

std::optional<Evaluation> Trainer::evaluate(const std::atomic<bool>& stop,
                                            const std::function<void(std::int64_t)>& done) {
  const double start = secondsNow();
  settleActivity();
  parameters_->beginEvaluation();
  const WithoutTimeline quiet(*groups_.activity);
  double sum = 0;  // of whole batches, each of which is exact: the same under every plan
  Evaluation result;
  bool stopped = false;
  for (std::int64_t batch = 0; batch < config_.validation->batches; ++batch) {
    stopped = maximum(stop.load() ? 1 : 0) != 0;
    if (stopped) break;
    const std::int64_t tokens = checkValidationData(batch);
    if (tokens > 0) sum += evaluateBatch(batch).value();
    result.tokens += tokens;
    if (done) done(batch + 1);
  }
  parameters_->endEvaluation();
  if (stopped) return std::nullopt;
  const auto refuse = [&](StatusCode code, const std::string& message, const std::string& remedy) {
    throw AgreedFailure({code, message, "validation.data", "", remedy}, groups_.world.index() == 0);
  };
  if (result.tokens == 0)
    refuse(StatusCode::dataError,
           "token file " + config_.validation->data.path +
               " has only documents of one token in its first batches, so there is nothing to predict",
           "join short documents, or set data.packing to none");
  result.loss = sum / static_cast<double>(result.tokens);
  if (!std::isfinite(result.loss))
    refuse(StatusCode::notFinite, "the validation loss is not finite", "lower the learning rate");
  result.seconds = secondsNow() - start;
  return result;
}

}  // namespace internevo::trainer
