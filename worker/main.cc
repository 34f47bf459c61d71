// sheaf-worker: see config.h for what it can be told, worker_loop.h for what it does.
#include "probe/computations/noop.h"
#include "probe/computations/one_hot.h"
#include "probe/computations/slow.h"
#include "worker/worker_main.h"
#include "workloads/hitters/computation.h"
#include "workloads/reco/computation.h"
#include "workloads/tags/computation.h"

int main(int argc, char** argv) {
  // THE table of what it can run:
  //
  //   tags      trains the tags model on one maintainer's packages; needs the data "debian-index"
  //   reco      rebuilds a package's vector and returns gradients of item rows; needs "debian-needs"
  //   hitters   counts the names that one maintainer's packages depend on; needs the data "debian-dependencies"
  //   noop      returns zeros for dense outputs and nothing for sparse ones
  //   one_hot   returns 1 at the index that the payload says in decimal, and in sparse outputs at index 0 as well: the
  //             aggregate shows which contributions were counted, and how often
  //   slow      computes for as long as the payload says ("1.5s"), reporting progress, then returns what noop does
  return sheaf::WorkerMain(argc, argv,
                           {sheaf::TagsComputation(), sheaf::RecoComputation(), sheaf::HittersComputation(),
                            sheaf::NoopComputation(), sheaf::OneHotComputation(), sheaf::SlowComputation()});
}
