"""What the examples in the headers of sdk refer to."""

SDK = """
extern Transport& transport; extern Timer& timer; extern Clock& clock; extern Random& random; extern RunControl& control;
extern std::string digest; extern std::string file; extern std::string bytes; extern v1::RoundSpec& spec;
extern Program& program; extern SafetensorsView& aggregate; extern int64_t width; extern int64_t num_labels;
"""

SDK_OF = {
    "client/blob_client.h": "extern v1::RowSelection& selection;",
    "client/channel_certificates.h": "extern ChannelOptions& options; extern absl::Time now; extern int64_t connected_version; "
                                     "extern void ConnectWith(const LoadedCertificates&);",
    "client/connect_answer.h": "extern ConnectAnswer& answer; extern google::protobuf::Message* response;",
    "client/http_proxy.h": "extern ServerAddress& address; "
                           "extern std::optional<std::string> Environment(const std::string&);",
    "client/range_joiner.h": "extern v1::ReadBlobRequest& request;",
    "client/round_client.h": "extern std::string broadcast;",
    "client/retrying_transport.h": "extern GrpcTransport& grpc_transport;",
    "client/server_transport.h": "extern ServerTransport& wire; extern bool was_connected;",
    "client/token_file.h": "extern grpc::ClientContext* context; extern absl::Status answer; extern void CallAgain();",
    "client/transport.h": "extern v1::GetRoundRequest& request; extern v1::SyncRequest& poll; "
                          "extern std::function<void(absl::StatusOr<v1::SyncResponse>)> on_answer;",
    "computation/computation.h": "extern Computation& computation; extern v1::Lease& lease; "
                                 "extern TaskInputs Fetch(const InputRequest&);",
    "computation/computation_row.h": "using Stations = std::vector<float>; extern DataSource<Stations>& stations; "
                                     "extern TaskFunction<Stations>& StationMean; extern DataSource<Stations>& index; "
                                     "extern std::unique_ptr<Computation> MakeTags(const ComputationParts&);",
    "computation/contribution.h": "extern int64_t num_features, num_examples; extern std::vector<int64_t> rows; "
                                  "extern std::vector<float> deltas, bias_delta;",
    "computation/data_source.h": "using Stations = std::vector<float>; "
                                 "extern absl::StatusOr<Stations> ReadStations(const std::string&);",
    "computation/run_control.h": "extern bool more; extern void Work();",
    "program/program.h": "extern v1::RoundSpec MeanSpec(int number); extern absl::Status Show(const SafetensorsView&);",
    "program/released_rows.h": "extern int64_t n; extern ServerOptimizer& optimizer; extern std::vector<float>& weights;",
    "program/round_plan.h": "extern int number; extern std::string broadcast; "
                            "extern absl::Status Verify(int, const RoundPlan&, const SafetensorsView&);",
    "program/rounds_ahead.h": "extern Connection& server; extern absl::StatusOr<v1::RoundSpec> plan(int number); "
                              "extern absl::StatusOr<std::string> broadcast(int number);",
    "program/server_optimizer.h": "extern std::vector<float> delta, deltas, bias, items; extern std::vector<int64_t> rows;",
}

FOLDERS = {
    "sdk/cpp": (["base/log.h", "base/status_macros.h", "cstdlib", "grpcpp/client_context.h"], SDK, SDK_OF),
}
