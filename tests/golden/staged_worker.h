// StagedWorker: the real WorkerLoop under virtual time, running the golden computation.
//
//   StagedWorker worker(agenda, transport, "edge-1", {.concurrency = 2, .seed = 7});
//   worker.RequestDrain();
//
// Destroying it kills the worker. Not thread-safe.
#pragma once

#include <memory>
#include <string>

#include "base/random.h"
#include "tests/golden/golden_computation.h"
#include "tests/golden/transcript.h"
#include "tests/simulation/agenda.h"
#include "worker/blob_cache.h"
#include "worker/worker_loop.h"

namespace sheaf::golden {

class StagedWorker {
 public:
  // Both outlive the agenda's last event.
  StagedWorker(simulation::Agenda& agenda, Transport& transport, const std::string& name, const WorkerStart& start)
      : life_(std::make_shared<Life>(agenda, transport, name, start)) {
    StepSoon(life_);
  }
  ~StagedWorker() { life_->loop.reset(); }
  StagedWorker(const StagedWorker&) = delete;
  StagedWorker& operator=(const StagedWorker&) = delete;

  void RequestDrain() { life_->loop->RequestDrain(); }
  bool is_done() const { return life_->loop->is_done(); }

 private:
  struct Life : std::enable_shared_from_this<Life> {
    Life(simulation::Agenda& time, Transport& transport, const std::string& name, const WorkerStart& start)
        : agenda(time), random(start.seed), runner(time) {
      WorkerOptions options{.worker = name,
                            .software_version = "golden",
                            .concurrency = start.concurrency,
                            .prepare_ahead = start.prepare_ahead};
      loop = std::make_unique<WorkerLoop>(options, WorkerLoop::Parts{transport, runner, cache, random, [this] {
                                                                       if (auto self = weak_from_this().lock())
                                                                         StepSoon(self);
                                                                     }});
    }
    simulation::Agenda& agenda;
    SeededRandom random;
    BlobCache cache{1 << 20};
    GoldenRunner runner;
    // A timer that is set anew makes the old one void.
    int64_t timer = 0;
    std::unique_ptr<WorkerLoop> loop;
  };

  static void StepSoon(const std::shared_ptr<Life>& life) { StepAt(life, life->agenda.now()); }
  static void StepAt(const std::shared_ptr<Life>& life, absl::Time time) {
    const int64_t timer = ++life->timer;
    if (time == absl::InfiniteFuture()) return;
    life->agenda.At(time, [life, timer] {
      if (life->loop == nullptr || timer != life->timer) return;
      const absl::Time next = life->loop->Step(life->agenda.now());
      if (timer == life->timer) StepAt(life, next);
    });
  }

  const std::shared_ptr<Life> life_;
};

}  // namespace sheaf::golden
