// Rights: what the caller may do, as the server says it. Pages offer no more; the server decides.
import type {GetServerInfoResponseJson} from "../../gen/sheaf/v1/inspection_service_pb.js";

export interface Rights {
  isOperator: boolean;
  isSubmitter: boolean;
  /** Empty: all. */
  populations: string[];
}

export function rightsOf(info: GetServerInfoResponseJson | undefined): Rights {
  const roles = info?.caller?.roles ?? [];
  return {isOperator: roles.includes("OPERATOR"), isSubmitter: roles.includes("SUBMITTER"), populations: info?.caller?.populations ?? []};
}
