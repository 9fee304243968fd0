// Types of `chat-client.js`. A test compares the names here with those of the class.

export type Side = "user" | "agent";
export type Transport = "socket" | "events";
export type ConnectionState = "idle" | "connecting" | "online" | "waiting" | "ended";
export type AgentState = "online" | "busy" | "away" | "offline";
export type MessageType = "text" | "image" | "order_card" | "product_card";

export interface Options {
  /** Address of `/ws/chat`. */
  url: string;
  /** Called before each connection and when a token ends soon; must settle in bounded time. */
  token: () => string | Promise<string>;
  /** Whose side this is. */
  me: { kind: Side; id: string };
  /** Address of `/api/chat`, for when no WebSocket gets through; by default beside `url`. `null`: never. */
  events?: string | null;
  /** Names this device: 1 to 64 of `A-Z a-z 0-9 _ . : -`. */
  device?: string;
  /** Highest `nseq` this device has; `null`: count from the next one. */
  notices?: number | null;
  /** Give every frame a timestamp and a nonce. Frames are signed by themselves when the server hands out a key. */
  guard?: boolean;
  /** For tests. */
  clock?: {
    now(): number;
    random(): number;
    id(): string;
    after(ms: number, run: () => void): unknown;
    cancel(timer: unknown): void;
  };
  WebSocket?: new (url: string, protocols: string[]) => unknown;
  fetch?: typeof fetch;
}

export interface Message {
  id: string;
  type: MessageType | "recalled";
  sessionId: string;
  seq: number;
  epoch: string;
  /** Empty once it was taken back. */
  content?: string;
  /** Of a `recalled` one: the message taken back. */
  refSeq?: number;
  recalled?: boolean;
  sender: { kind: Side; id: string; bot?: boolean };
  clientMsgId?: string;
  time: number;
}

/** A message that no server has accepted yet. */
export interface Unsent {
  readonly clientMsgId: string;
  readonly sessionId: string | null;
  readonly type: MessageType | "recall";
  readonly content: string | number;
  readonly at: number;
  readonly state: "queued" | "sent" | "failed";
  readonly code?: string;
  readonly reason?: string;
}

export interface Timeline {
  /** In order of `seq`, each once, none missing. */
  readonly messages: readonly Message[];
  readonly loaded: boolean;
  readonly hasOlder: boolean;
  readonly last: number | null;
  readonly epoch: string | undefined;
}

export interface Session {
  readonly id: string;
  readonly no: string;
  readonly userId: string | undefined;
  readonly agentId: string | undefined;
  readonly subject: string;
  readonly closed: boolean;
  /** Whether an agent no longer serves it. */
  readonly left: boolean;
  readonly unread: number;
  /** How far the other side has received and read. */
  readonly peerReceived: number;
  readonly peerRead: number;
  /** Until when the other side counts as writing, by the server's clock. */
  readonly typingUntil: number;
  readonly overdue: { clock: string; elapsedMs: number } | null;
  readonly lastMessage: Message | undefined;
  readonly timeline: Timeline;
}

/** A session as lists show it. */
export interface SessionEntry {
  sessionId: string;
  sessionNo: string;
  epoch: string;
  maxSeq: number;
  yourSeq: number;
  unread: number;
  userId: string;
  agentId?: string;
  subject: string;
  waitingSince?: number;
}

export interface Problem {
  code: string;
  message?: string;
  temporary?: boolean;
}

export interface ChatEvents {
  state: { state: ConnectionState; transport: Transport; code?: number; retryInMs?: number };
  change: { sessionId: string | null };
  sessions: Record<string, never>;
  message: { sessionId: string; message: Message };
  typing: { sessionId: string; by: string };
  presence: { who: string; state: AgentState };
  status: { state: AgentState };
  waiting: { count: number };
  overdue: { sessionId: string; clock: string; elapsedMs: number };
  seckill: { orderNo: string; status: "success" | "fail"; message?: string; nseq?: number };
  token: { inMs: number };
  problem: Problem;
}

export class ChatClient extends EventTarget {
  constructor(options: Options);
  readonly me: { kind: Side; id: string };
  readonly state: ConnectionState;
  readonly transport: Transport;
  /** What a session is opened with when the first message has none. */
  subject: string;
  readonly sessions: ReadonlyMap<string, Session>;
  readonly outbox: { of(sessionId: string | null): Unsent[]; get(clientMsgId: string): Unsent | undefined };
  readonly agentState: AgentState | undefined;
  readonly waiting: number;
  readonly presence: ReadonlyMap<string, AgentState>;
  readonly unread: number;
  readonly current: Session | null;
  readonly nseq: number | null;
  start(): void;
  stop(): void;
  wake(): void;
  now(): number;
  /** @returns the message's id, or null when too many are waiting already */
  send(sessionId: string | null, content: string, type?: MessageType): string | null;
  retry(clientMsgId: string): void;
  discard(clientMsgId: string): void;
  load(sessionId: string): void;
  older(sessionId: string): void;
  markRead(sessionId: string): void;
  refresh(token: string): void;
  typing(sessionId: string): void;
  recall(sessionId: string, seq: number): string | null;
  status(state: AgentState): void;
  transfer(sessionId: string, to: `agent:${string}` | "waiting"): void;
  close(sessionId: string): void;
  line(): Promise<SessionEntry[]>;
  colleagues(): Promise<{ agentId: string; state: AgentState; openSessions: number; unread: number }[]>;
  addEventListener<K extends keyof ChatEvents>(
    type: K,
    listener: (event: CustomEvent<ChatEvents[K]>) => void,
    options?: boolean | AddEventListenerOptions,
  ): void;
  addEventListener(type: string, listener: EventListenerOrEventListenerObject | null, options?: boolean | AddEventListenerOptions): void;
}
