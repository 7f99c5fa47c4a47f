export { EdgeHarness, type WaitingCall } from "./client.ts";
export { EdgeHarnessError } from "./error.ts";
export type { FollowOptions } from "./follow.ts";
export { Session, type DecisionOptions, type SendOptions } from "./session.ts";
export { Socket } from "./socket.ts";
export type { ClientOptions, RequestOptions } from "./transport.ts";
export { Turn } from "./turn.ts";
export type * from "./types.ts";
export { eventId } from "./types.ts";
