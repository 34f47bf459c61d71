// RowFetch: reads rows of tensors of a broadcast, following the cursor and joining the pieces. Each request asks for a window
// of the rows only: it travels again with each of its pages, so that asking for all rows at once would take time in proportion
// to the square of their number. Whatever the server answers, the fetch ends: it takes no more rows than it asked for and no
// more bytes than it may, and each page must bring some.
import {create, type Message} from "@bufbuild/protobuf";

import {
  BlobService, type RowSelection, RowSelectionSchema, type SelectRowsRequest, SelectRowsRequestSchema,
  type SelectRowsResponse, type SelectRowsResponse_Piece,
} from "../../gen/sheaf/v1/blob_service_pb.js";
import {dataLoss, SheafError} from "../errors.js";
import {dtypeOf, type DType} from "../values/dtypes.js";
import {Tensor} from "../values/tensor.js";
import type {CallSequence, NextCall} from "./call_sequence.js";

// Rows of one request.
const WINDOW_ROWS = 1 << 16;

/** Rows of one tensor, in this order; repeats are allowed. */
export interface WantedRows {
  tensor: string;
  rows: readonly bigint[];
}

interface Rows {
  name: string;
  dtype: DType | null;
  // Of one row; null before the first piece.
  rowShape: number[] | null;
  numRows: number;
  pieces: Uint8Array[];
}

export class RowFetch implements CallSequence {
  done: boolean;
  error: SheafError | null = null;
  /** Bytes of tensor data received. */
  bytesReceived = 0;

  private readonly bytesMax: number;
  private readonly windowRows: number;
  private readonly wanted: readonly WantedRows[];
  private readonly tensors: Rows[];
  private request: SelectRowsRequest;
  // The window: selections from `firstSelection` on, the first of them from its row `firstRow` on.
  private firstSelection = 0;
  private firstRow = 0;
  // Behind the window.
  private nextSelection = 0;
  private nextRow = 0;
  // Of the newest piece; -1 before the first.
  private newestSelection = -1;

  /** RESOURCE_EXHAUSTED once more than `bytesMax` have arrived. */
  constructor(digest: string, wanted: readonly WantedRows[], bytesMax: number, windowRows = WINDOW_ROWS) {
    this.bytesMax = bytesMax;
    this.windowRows = windowRows;
    this.wanted = wanted;
    this.tensors = wanted.map(({tensor}) => ({name: tensor, dtype: null, rowShape: null, numRows: 0, pieces: []}));
    this.done = wanted.length === 0;
    this.request = create(SelectRowsRequestSchema, {digest});
    this.askForNextWindow();
  }

  next(): NextCall {
    return {method: BlobService.method.selectRows, request: this.request};
  }

  takeLess(): boolean {
    return false;
  }

  onDone(error: SheafError | null, response: Message | null): void {
    try {
      if (error !== null) throw error;
      this.onPage(response as SelectRowsResponse);
    } catch (refusal) {
      this.error = refusal as SheafError;
      this.done = true;
    }
  }

  /** When done without an error: one tensor per selection, in their order, of shape [rows selected, shape of one row...]. */
  takeTensors(): Tensor[] {
    return this.tensors.map(({dtype, rowShape, numRows, pieces}) => {
      const bytes = new Uint8Array(pieces.reduce((sum, piece) => sum + piece.length, 0));
      let at = 0;
      for (const piece of pieces.splice(0)) {
        bytes.set(piece, at);
        at += piece.length;
      }
      return Tensor.fromBytes(dtype!, [numRows, ...rowShape!], bytes);
    });
  }

  private askForNextWindow(): void {
    const selections: RowSelection[] = [];
    this.firstSelection = this.nextSelection;
    this.firstRow = this.nextRow;
    for (let room = this.windowRows; room > 0 && this.nextSelection < this.wanted.length;) {
      const whole = this.wanted[this.nextSelection]!;
      const count = Math.min(whole.rows.length - this.nextRow, room);
      selections.push(create(RowSelectionSchema, {
        tensor: whole.tensor, rows: whole.rows.slice(this.nextRow, this.nextRow + count),
      }));
      room -= Math.max(count, 1);
      this.nextRow += count;
      if (this.nextRow < whole.rows.length) break;
      ++this.nextSelection;
      this.nextRow = 0;
    }
    this.request = create(SelectRowsRequestSchema, {digest: this.request.digest, selections});
  }

  private onPage(response: SelectRowsResponse): void {
    const bytesBefore = this.bytesReceived;
    const newestBefore = this.newestSelection;
    for (const piece of response.pieces) this.join(piece);
    if (response.nextCursor === "") {
      this.checkWindowIsComplete();
      if (this.nextSelection < this.wanted.length) return this.askForNextWindow();
      this.done = true;
      return;
    }
    // Rows may have no bytes; then the next page begins with the next selection.
    const hasMoved = this.bytesReceived > bytesBefore || this.newestSelection > newestBefore;
    if (!hasMoved || response.nextCursor === this.request.cursor) {
      throw dataLoss("the server's answers bring no more of the selected rows; try again");
    }
    this.request = create(SelectRowsRequestSchema, {...this.request, cursor: response.nextCursor});
  }

  private join(piece: SelectRowsResponse_Piece): void {
    const asked = this.request.selections[piece.selection];
    if (asked === undefined) {
      throw malformed("?", `a piece belongs to selection ${piece.selection} of ${this.request.selections.length}`);
    }
    const selection = this.firstSelection + piece.selection;
    const tensor = this.tensors[selection]!;
    if (selection < this.newestSelection) throw malformed(tensor.name, "a piece comes after those of a later selection");
    this.newestSelection = selection;
    const rows = piece.rows;
    const shape = rows?.shape.map(Number) ?? [];
    const dtype = rows === undefined ? null : dtypeOf(rows.dtype);
    const isWhole = rows !== undefined && dtype !== null && shape.length > 0 && shape.every((size) => size >= 0)
      && shape.reduce((product, size) => product * size, dtype.bytes) === rows.data.length;
    if (!isWhole) throw malformed(tensor.name, "a piece has other bytes than its shape needs");
    const [numRows, ...rowShape] = shape as [number, ...number[]];
    tensor.dtype ??= dtype;
    tensor.rowShape ??= rowShape;
    if (dtype !== tensor.dtype || rowShape.join() !== tensor.rowShape.join()) {
      throw malformed(tensor.name, "its pieces have rows of different types");
    }
    const expected = tensor.numRows - (selection === this.firstSelection ? this.firstRow : 0);
    if (piece.firstRow !== BigInt(expected)) {
      throw malformed(tensor.name, `row ${piece.firstRow} of the selection follows row ${expected}`);
    }
    if (numRows > asked.rows.length - expected) {
      throw malformed(
        tensor.name, `${numRows} rows arrived after ${expected}, and ${asked.rows.length} were asked for`);
    }
    if (rows.data.length > this.bytesMax - this.bytesReceived) {
      throw new SheafError("RESOURCE_EXHAUSTED", `the rows of broadcast ${this.request.digest} have more than ` +
        `${this.bytesMax} bytes, and no more are taken here`);
    }
    this.bytesReceived += rows.data.length;
    tensor.numRows += numRows;
    tensor.pieces.push(rows.data);
  }

  private checkWindowIsComplete(): void {
    this.request.selections.forEach((asked, i) => {
      const tensor = this.tensors[this.firstSelection + i]!;
      // Also a selection of no rows has a piece, which says of what type they are.
      if (tensor.rowShape === null) throw malformed(asked.tensor, "nothing of it arrived");
      const numRows = tensor.numRows - (i === 0 ? this.firstRow : 0);
      if (numRows !== asked.rows.length) {
        throw malformed(asked.tensor, `${numRows} of ${asked.rows.length} arrived`);
      }
    });
  }
}

function malformed(tensor: string, what: string): SheafError {
  return dataLoss(`the selected rows of tensor "${tensor}" did not arrive in order: ${what}`);
}
