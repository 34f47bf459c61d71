"""What the examples in the headers of server refer to."""

CORE = """
extern TaskStore& store; extern PayloadStore& payloads; extern Executor& executor; extern Random& random;
extern Background& background; extern ParallelFor& parallel; extern CoreContext& context; extern Limits& limits; extern Clock& clock;
extern absl::Time now; extern absl::Time read_until; extern absl::Time arrival_time;
extern std::string digest; extern std::string lease_token; extern std::string reason;
extern int64_t size_bytes; extern int64_t bytes_each; extern int64_t contribution_bytes_max;
extern RoundId& id; extern LeaseToken& token; extern CallId call; extern TaskRecord& task;
extern Identity& caller; extern WorkerProfile& worker; extern std::vector<WorkerProfile>& profiles;
extern LiveRounds& rounds; extern LiveRound& round;
extern v1::SyncRequest& request; extern v1::SyncResponse& response; extern Reply<v1::SyncResponse> reply;
extern v1::TaskResult& result; extern v1::HeldLease& held;
extern Broadcasts& broadcasts; extern BroadcastReaders& readers; extern DueTime& due; extern ContributionFold& fold;
extern bool is_connected;
"""

# Of one header: what differs from its folder's.
CORE_OF = {
    "access/access_control.h": "extern AccessControl& access;",
    "batch_runner.h": "extern Core& core; extern std::vector<Executor::Event>& events;",
    "batches/call_id.h": "extern SyncCalls& sync; extern IdentityPtr caller; extern ParkedPolls& polls;",
    "broadcasts/inline_broadcasts.h": "extern InlineBroadcasts& inline_broadcasts; extern v1::OpenRoundRequest& request;",
    "broadcasts/broadcast_check.h": "extern std::shared_ptr<const BlobView> upload; extern std::shared_ptr<const BlobView> blob;",
    "broadcasts/open_blobs.h": "extern OpenBlobs& open_blobs;",
    "broadcasts/broadcasts.h": "extern std::vector<std::string> bases;",
    "broadcasts/patched_blob.h": "extern SafetensorsBlob& whole; extern SafetensorsBlob& patch; "
                                 "extern std::vector<ByteRange> ranges; extern std::string rows;",
    "broadcasts/row_selection.h": "extern SafetensorsHeader& header; extern BlobView& blob; extern v1::SelectRowsRequest& request;",
    "contributions/checkpoints.h": "extern Checkpoints& checkpoints;",
    "contributions/contribution_fold.h": "extern std::string_view bytes; extern std::shared_ptr<Unfolded> unfolded;",
    "contributions/reception.h": "extern MemoryBudget& budget; extern int64_t bytes_max;",
    "contributions/refold.h": "extern RoundRecord& record; extern RequirementIndex& requirements;",
    "contributions/spools.h": "extern Spools& spools;",
    "contributions/staleness_discount.h": "extern ValidContribution& valid;",
    "core.h": "extern IdentityPtr caller;",
    "inspection/explain.h": "extern UnmetRequirements::Found& unmet; extern WorkerRegistry& workers; extern ParkedPolls& polls;",
    "inspection/round_watch.h": "extern RoundWatch& watch; extern v1::GetRoundRequest& request; extern IdentityPtr caller; extern Reply<v1::GetRoundResponse> reply;",
    "inspection/task_listing.h": "extern TaskListing& listing; extern v1::ListTasksRequest& request;",
    "inspection/unmet_requirements.h": "extern UnmetRequirements& unmet;",
    "inspection/views.h": "extern RoundRecord& record;",
    "leases/attempt_end.h": "extern AttemptEnd& attempts;",
    "leases/call_times.h": "extern LeaseRenewal& renewal;",
    "leases/lease_expiry.h": "extern LeaseExpiry& expiry;",
    "leases/lease_grants.h": "extern LeaseGrants& grants;",
    "leases/lease_renewal.h": "extern LeaseRenewal& renewal;",
    "leases/lease_room.h": "extern LeaseRoom& room;",
    "leases/leases_in_reception.h": "extern LeasesInReception& leases;",
    "leases/retry_policy.h": "extern v1::RetryPolicy& policy;",
    "leases/scheduler.h": "extern Scheduler& scheduler;",
    "leases/speculation.h": "extern Speculation& speculation;",
    "leases/straggler_policy.h": "extern TaskCounts& counts;",
    "leases/work_rates.h": "extern WorkRates& rates;",
    "lifecycle/new_rounds.h": "extern NewRounds& new_rounds; extern v1::CreateRoundRequest& request;",
    "figures/batch_figures.h": "extern BatchFigures& figures;",
    "figures/core_figures.h": "extern CoreFigures& figures;",
    "figures/population_slots.h": "extern PopulationSlots& slots; extern CoreFigures& figures;",
    "figures/worker_ages.h": "extern WorkerAges& ages; extern int64_t before;",
    "lifecycle/release_sink.h": "extern v1::Aggregate& aggregate;",
    "lifecycle/retention.h": "extern Retention& retention;",
    "lifecycle/round_changes.h": "extern RoundChanges& changes;",
    "lifecycle/carry_over.h": "extern CarryOver& carry_over;",
    "rounds/continuation.h": "extern const v1::RoundSpec before; extern const v1::RoundSpec spec;",
    "lifecycle/round_closing.h": "extern RoundClosing& closing; extern ContributionFold::Acceptance& acceptance;",
    "lifecycle/round_openings.h": "extern RoundOpenings& openings; extern v1::OpenRoundRequest& request; extern Reply<RoundRecord> reply;",
    "lifecycle/round_creations.h": "extern RoundCreations& creations; extern v1::CreateRoundRequest& request; extern Reply<RoundRecord> reply;",
    "lifecycle/round_recovery.h": "extern RoundRecovery& recovery;",
    "lifecycle/round_sealer.h": "extern RoundSealer& sealer;",
    "limits/fixed_limits.h": "extern std::string name;",
    "limits/limits.h": "extern int64_t num_tasks;",
    "limits/memory_budget.h": "extern MemoryBudget& budget; extern Reception& reception;",
    "limits/population_share.h": "extern PopulationShare& live_tasks;",
    "limits/rate_window.h": "extern RateWindow& window;",
    "requests/message_parts.h": "extern google::protobuf::io::ZeroCopyInputStream& stream;",
    "requests/paging.h": "extern TaskStore::ListRoundsParams& params; extern v1::ListRoundsResponse& response; extern int page_size;",
    "requests/state_filter.h": "extern TaskStore::ListRoundsParams& params; extern v1::ListRoundsRequest& request;",
    "rounds/attempt_placement.h": "extern absl::Time arrival;",
    "rounds/critical_path.h": "extern RoundStamps& stamps; extern PathTask& task;",
    "rounds/fold_strand.h": "extern FoldStrand& strand; extern ByteSink& take; extern std::shared_ptr<Unfolded> contribution; "
                            "extern int64_t bytes;",
    "rounds/live_rounds.h": "extern std::unique_ptr<LiveRound> restored;",
    "rounds/requirement_index.h": "extern RequirementIndex::Labels& labels;",
    "rounds/requirement_match.h": "extern v1::TaskSpec& task_spec;",
    "rounds/round_spec.h": "extern v1::CreateRoundRequest& request;",
    "rounds/round_work.h": "extern RoundWork& work;",
    "rounds/spec_difference.h": "extern v1::RoundSpec& stored; extern v1::CreateRoundRequest& request; extern PreparedRound& prepared;",
    "sync/contribution_intake.h": "extern ContributionIntake& intake; extern WorkerName& worker; extern IdentityPtr caller; extern std::function<void(ContributionIntake::Receptions, absl::Time)> judge;",
    "sync/pace_steering.h": "extern int64_t num_queued(); extern absl::Duration min, max;",
    "sync/parked_polls.h": "extern ParkedPolls& polls;",
    "sync/sync_calls.h": "extern SyncCalls& sync; extern IdentityPtr caller;",
    "sync/task_demand.h": "extern int64_t num_queued;",
    "uploads/upload_names.h": "extern v1::StartUploadRequest& request; extern std::string& upload_id;",
    "uploads/upload_quota.h": "extern UploadId& id;",
    "uploads/upload_size.h": "extern v1::StartUploadRequest& request;",
    "uploads/uploads.h": "extern Uploads& uploads; extern v1::StartUploadRequest& request;",
    "uploads/wanted_uploads.h": "extern TaskId& id;",
    "workers/worker_registry.h": "extern WorkerRegistry& workers; extern IdentityPtr caller;",
    "workers/worker_retention.h": "extern WorkerRetention& retention;",
}

THREADS = """
extern Clock& clock; extern Limits& limits; extern TaskStore& store; extern PayloadStore& payloads; extern Random& random;
extern Core::Options options; extern void StopProcess(const absl::Status&);
"""

THREADS_OF = {
    "aggregation_pool.h": "extern int parts; extern std::function<void(int)> body;",
    "batch_gatherer.h": "extern BatchGatherer& gatherer; extern Executor::Event event; extern absl::Time next_tick; "
                        "extern size_t events_max; extern std::vector<absl::Duration> Run(BatchGatherer::Batch&);",
    "call_threads.h": "extern void HashAndFlush();",
    "strand_pool.h": "extern Background::Job job;",
    "turn_queue.h": "extern TurnQueue& queue; extern Executor::Event event; extern absl::Time arrival; "
                    "extern Clock& clock;",
    "work_meter.h": "extern WorkMeter& meter; extern absl::Duration kBatchCpuMax;",
}

CALLS = """
extern Core& core; extern Executor& executor; extern Clock& clock; extern Limits& limits; extern CallPool& pool;
extern MethodTable& methods; extern Dispatcher& dispatcher; extern Admission& admission; extern AnswerBooks& answers;
extern CallPipeline& pipeline; extern MethodRow& method; extern CallId call; extern IdentityPtr caller; extern CallFigures& figures;
extern absl::Time now; extern int64_t bytes; extern v1::SyncRequest& request; extern v1::SyncResponse& response;
"""

CALLS_OF = {
    "admission.h": "extern Identity& caller; extern Lane lane;",
    "answer_books.h": "extern AnswerBooks& books; extern CallId id; extern AnswerClient& client; extern AnsweredCall& call;",
    "call.h": "extern std::string& bytes;",
    "credentials.h": "",
    "forwarder.h": "extern Forwarder& forwarder; extern Credentials& credentials;",
    "kept_caller.h": "extern Forwarder& forwarder; extern ForwardedCaller& by; extern MethodRow::Done done;",
    "store_router.h": "extern Forwarder& elsewhere; extern CallPool& pool; extern MethodTable& methods; extern Dispatcher& dispatcher; "
                      "extern ForwardedCaller& caller; extern MethodRow::Done done; extern Clock& clock; extern absl::Duration timeout;",
    "shard_router.h": "extern Forwarder& home; extern Forwarder& second; extern ShardDirectory& directory; extern CallPool& pool; "
                      "extern Core& core; extern ForwardedCaller& caller; extern MethodRow::Done done;",
    "call_pool.h": "extern std::string& client; extern void HashAndFlush();",
    "method_row.h": "extern RoundHandlers& rounds; extern TransferHandlers& transfers;",
    "method_table.h": "extern Handlers& handlers;",
    "scope.h": "extern Identity& caller; extern v1::GetRoundRequest& request;",
}

HANDLERS = "extern Core& core; extern PayloadStore& payloads; extern Admission& admission; extern ServingCertificate& certificate;"

HANDLERS_OF = {
    "local_transfers.h": "extern Forwarder& owner; extern MethodTable& methods; extern Dispatcher& dispatcher; "
                         "extern Limits& limits; extern Clock& clock; extern CallId call; extern MethodRow& method; "
                         "extern ForwardedCaller& caller; extern v1::ReadBlobRequest& request; "
                         "extern v1::ReadBlobResponse response; extern MethodRow::Done& done;",
    "transfer_handlers.h": "extern OpenBlobs& open_blobs; extern Limits& limits; extern v1::ReadBlobRequest& request; "
                           "extern int64_t answer_bytes_max;",
    "upload_handlers.h": "extern v1::FinishUploadRequest& request;",
}

# Of all other folders.
SERVER = """
extern TaskStore& store; extern PayloadStore& payloads; extern Executor& executor; extern Clock& clock; extern Random& random;
extern Limits& limits; extern CallPipeline& pipeline; extern MethodRow& method; extern AnswerBooks& books;
extern grpc::ServerBuilder& builder; extern std::string dir;
"""

SERVER_OF = {
    "http/byte_buffer.h": "extern size_t left; extern int fd; extern void Parse(std::string_view);",
    "http/byte_stream.h": "extern int fd; extern TlsContext& context; extern std::span<char> space; "
                          "extern void WaitUntilReadable(int fd);",
    "http/content_choice.h": "extern HttpRequest& request; extern std::string etag, fields; extern ExchangePtr exchange;",
    "http/origins.h": "extern HttpRequest& request; extern void Refuse(HttpRequest&);",
    "http/tls_context.h": "extern int fd; extern LoadedCertificates& loaded;",
    "http/connect_call.h": "extern std::vector<Route>& routes;",
    "http/connect_protocol.h": "extern std::shared_ptr<HttpExchange>& exchange; extern HttpRequest& request;",
    "web/embedded_route.h": "extern std::vector<Route>& routes; extern EmbeddedFile& file;",
    "web/embedded_file.h": "",
    "web/file_type.h": "",
    "web/join_files.h": "",
    "web/join_routes.h": "extern std::vector<Route>& routes; extern JoinFiles& files;",
    "http/credentials.h": "extern HttpRequest& request; extern HttpExchange& exchange;",
    "http/file_part.h": "extern HttpRequest& request;",
    "http/deadlines.h": "struct Connection { void OnDeadline(); }; extern Connection* connection; extern absl::Time now;",
    "http/event_loop.h": "extern std::shared_ptr<LoopClient>& connection;",
    "http/http_message.h": "extern HttpRequest& request; extern std::shared_ptr<HttpExchange>& exchange; "
                           "extern void Parse(std::string_view);",
    "http/json_text.h": "extern google::protobuf::Descriptor& type; extern std::string text;",
    "http/request_parser.h": "extern std::string bytes; extern void Answer(HttpRefusal); extern void Find(HttpRequest&); "
                             "extern void Serve(HttpRequest&);",
    "net/certificate_watch.h": "extern CertificateFiles& files; extern absl::Status Use(const LoadedCertificates&); "
                               "using FileWatcherCertificateProvider = grpc::experimental::FileWatcherCertificateProvider;",
    "metrics/metric_rows.h": "extern absl::Time now; extern MetricSources& sources;",
    "metrics/metrics_text.h": "extern MetricSources& sources;",
    "metrics/metrics_route.h": "extern MetricsText& text;",
    "rpc/grpc_call.h": "extern grpc::CallbackServerContext* context; extern grpc::ByteBuffer request_bytes, answer_bytes;",
    "net/batch_scheduling.h": "extern void StartThreads();",
    "net/listener.h": "extern void Serve(int fd);",
    "rpc/grpc_forwarder.h": "extern std::string pem, secret;",
    "rpc/message_bytes.h": "extern v1::SyncResponse& answer;",
    "rpc/forwarded_metadata.h": "",
    "shared_store.h": "extern Runtime& front; extern std::shared_ptr<PayloadStore> payloads; extern Clock& clock; extern SharedStore::Options& options; "
                      "extern std::optional<GrpcForwarder::Owner> owner, successor; extern TaskStore& tasks; extern PayloadStore& stored; extern Random& random;",
    "shard_keeper.h": "extern PostgresShards* shards; extern SharedServer& server; extern Clock& clock; "
                      "extern std::function<std::unique_ptr<Random>()> make_random;",
    "shared_server.h": "extern ShardDirectory& directory; extern std::shared_ptr<PayloadStore> shared_payloads_of_1; extern std::vector<TokenRecord>& tokens; extern std::shared_ptr<PayloadStore> shared_payloads; extern std::optional<GrpcForwarder::Owner> owner; extern TaskStore& store; extern PayloadStore& payloads;",
    "store_threads.h": "extern absl::Duration idle_max; extern TaskStore& store; extern PayloadStore& payloads; extern Core::Options& options; "
                       "extern FrontParts& front; extern CallPool& pool;",
    "server_parts.h": "extern std::vector<Executor::Event> events; extern v1::SyncRequest request; extern v1::SyncResponse response; "
                      "extern Dispatcher::Done& done;",
}

FOLDERS = {
    "server": (["base/clock.h", "base/log.h", "base/status_macros.h", "fmt/core.h", "grpcpp/security/tls_certificate_provider.h"],
               SERVER, SERVER_OF),
    "server/core": (["base/clock.h", "base/log.h", "base/status_macros.h", "server/core/core.h"], CORE, CORE_OF),
    "server/calls": (["base/clock.h", "base/status_macros.h", "google/protobuf/io/zero_copy_stream_impl_lite.h",
                      "server/core/core.h", "server/handlers/method_rows.h"], CALLS, CALLS_OF),
    "server/handlers": (["base/status_macros.h", "server/calls/method_table.h"], HANDLERS, HANDLERS_OF),
    "server/threads": (["base/clock.h", "base/log.h", "base/status_macros.h"], THREADS, THREADS_OF),
}
