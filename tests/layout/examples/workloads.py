"""What the examples in the headers of workloads refer to."""

WORKLOADS = """
extern Connection& server; extern std::string path; extern std::string text; extern Random& random; extern v1::Lease& lease;
extern int client; extern RoundPlan& plan; extern SafetensorsView& aggregate;
"""

WORKLOADS_OF = {
    "brute_force.h": "extern std::vector<int> clients; extern std::vector<v1::Contribution> contributions; "
                     "extern v1::Contribution ContributionOf(int client);",
    "client_sampling.h": "extern uint64_t seed; extern int number; extern TagsDataset& dataset;",
    "hitters/program.h": "extern HittersDataset& dataset;",
    "reco/config.h": "extern RecoDataset& dataset;",
    "reco/model.h": "extern RecoDataset& dataset; extern RecoConfig& config; extern std::vector<float> rows;",
    "reco/program.h": "extern RecoDataset& dataset;",
    "snapshot.h": "extern std::vector<std::string> names; extern uint64_t kNamesMax;",
    "tags/config.h": "extern TagsDataset& dataset;",
    "tags/dataset.h": "extern int num_features; extern std::vector<uint32_t> features; extern std::vector<uint16_t> labels;",
    "tags/model.h": "extern TagsDataset& dataset; extern TagsConfig& config; extern std::vector<float> w, b;",
    "tags/program.h": "extern TagsDataset& dataset;",
}

FOLDERS = {
    "workloads": (["base/status_macros.h", "fmt/core.h"], WORKLOADS, WORKLOADS_OF),
}
