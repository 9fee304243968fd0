// What the pages say, in Chinese and English, and which of the two is spoken. Nothing else is worded anywhere else.
// Used by every page; texts in HTML are named by `data-i18n` (text) and `data-i18n-<attribute>`.

const TEXTS = {
  en: {
    "app.desk": "Agent desk",
    "app.shop": "Shop",
    "app.language": "切换到中文",
    "app.languageShort": "中文",
    "app.theme": "Switch between light and dark",
    "app.you": "You are {name}",
    "app.noState": "The shop cannot be reached. Trying again…",

    "sale.title": "Flash sale",
    "sale.none": "No sale is on right now",
    "sale.picture": "Picture of the product",
    "sale.save": "{percent}% off",
    "sale.was": "Price before: {price}",
    "sale.startsIn": "Starts in",
    "sale.endsIn": "Ends in",
    "sale.over": "The sale is over",
    "sale.days": "days",
    "sale.hours": "hours",
    "sale.minutes": "min",
    "sale.seconds": "sec",
    "sale.left": "{left} of {stock} left",
    "sale.stock": "Units left",
    "sale.onePer": "One per customer",

    "buy.before": "Starts soon",
    "buy.ready": "Buy now",
    "buy.sending": "Sending…",
    "buy.queued": "In the queue…",
    "buy.won": "It is yours",
    "buy.soldOut": "Sold out",
    "buy.after": "Sale ended",
    "buy.again": "Try again",
    "buy.wait": "Try again in {seconds} s",

    "hint.before": "We open on the second. No need to reload.",
    "hint.during": "One click is enough. Your place in the queue is kept.",
    "hint.soldOut": "Every unit has found a buyer. If one comes back, it will show here.",
    "hint.after": "Thank you for coming by.",

    "result.queued": "Your place is safe. The order is being written.",
    "result.slow": "This takes longer than usual. You can leave; your place is kept.",
    "result.won": "Order confirmed.",
    "result.cancel": "Cancel the order",
    "result.closed": "The order is closed, and its unit is for sale again.",
    "won.CANCELLING": "Cancelling…",
    "won.ALREADY_PAID": "The order is paid. Ask us in the chat to send it back.",
    "won.PENDING": "The order is still being written. A moment, then try again.",
    "won.OFFLINE": "No answer from the shop. Cancelling again does no harm.",
    "result.lost": "The order could not be completed. Nothing was charged.",
    "result.order": "Order number",
    "result.copy": "Copy the order number",
    "result.copied": "Copied",
    "result.RISK_REFUSED": "That was very quick. A short pause, then you can try again.",
    "result.RATE_LIMITED": "Many people are asking at once. A short pause, then you can try again.",
    "result.NOT_STARTED": "Not open yet. One moment.",
    "result.SOLD_OUT": "Every unit has found a buyer. If one comes back, it will show here.",
    "result.ENDED": "The sale has ended.",
    "result.LIMIT_EXCEEDED": "You already have as many as one customer may buy.",
    "result.NOT_READY": "The sale is still being prepared. Please try again in a moment.",
    "result.OFFLINE": "No answer from the shop. Your attempt is kept: trying again cannot buy twice.",
    "result.UNAUTHENTICATED": "Your sign-in has expired. Reload the page.",
    "result.broken": "Something went wrong on our side. Your attempt is kept: trying again cannot buy twice.",
    "result.trace": "Trace",

    "promise.once": "Never twice",
    "promise.onceMore": "Click as often as you like. One order, one number, however shaky the network.",
    "promise.fair": "First come, first served",
    "promise.fairMore": "A unit that was promised to you is never taken back.",
    "promise.people": "Someone is there",
    "promise.peopleMore": "Write to us. A message that shows one tick is stored for good.",

    "chat.title": "Customer service",
    "chat.open": "Open the chat",
    "chat.openUnread": "Open the chat, unread: {count}",
    "chat.close": "Close the chat",
    "chat.placeholder": "Write a message",
    "chat.send": "Send",
    "chat.empty": "Hello! What can we do for you?",
    "chat.older": "Earlier messages",
    "chat.loading": "Loading…",
    "chat.messages": "Messages",
    "chat.you": "You",
    "chat.bot": "Auto reply",
    "chat.agent": "Customer service",
    "chat.sending": "Sending",
    "chat.sent": "Sent",
    "chat.delivered": "Delivered",
    "chat.read": "Read",
    "chat.failed": "Not sent",
    "chat.retry": "Send again",
    "chat.discard": "Delete",
    "chat.recalled": "This message was withdrawn",
    "chat.closed": "This conversation is closed. A new message starts another one.",
    "chat.closedAgent": "This conversation is closed.",
    "chat.handedOver": "Somebody else serves this customer now.",
    "chat.waiting": "Nobody is free right now. You are in the line, and your messages are kept.",
    "chat.typing": "Writing…",
    "chat.recall": "Withdraw",
    "chat.full": "Too many messages are waiting to be sent.",
    "chat.today": "Today",
    "chat.image": "Image",
    "chat.reason.SESSION_CLOSED": "The conversation is closed",
    "chat.reason.NOT_FOUND": "The conversation is gone",
    "chat.reason.TOO_LARGE": "Too long",
    "chat.reason.EMPTY_CONTENT": "Nothing to send",
    "chat.reason.CLIENT_MSG_ID_CONFLICT": "Sent before with other words",

    "link.idle": "Not connected",
    "link.connecting": "Connecting…",
    "link.online": "Connected",
    "link.waiting": "Reconnecting…",
    "link.ended": "Disconnected",
    "link.retry": "Reconnect",

    "desk.title": "Agent desk",
    "desk.sessions": "Conversations",
    "desk.none": "No conversations yet",
    "desk.noneMore": "They appear here as soon as a customer writes.",
    "desk.choose": "Choose a conversation",
    "desk.back": "Back to the list",
    "desk.status": "Your status",
    "desk.online": "Available",
    "desk.busy": "Busy",
    "desk.away": "Away",
    "desk.offline": "Offline",
    "desk.waiting": "Waiting",
    "desk.take": "Take",
    "desk.takeWhom": "Take {name}",
    "desk.since": "for {minutes} min",
    "desk.transfer": "Hand over",
    "desk.transferTo": "Hand over to",
    "desk.toLine": "Back to the waiting line",
    "desk.open": "{count} open",
    "desk.close": "Close",
    "desk.closeAsk": "Close this conversation for both sides?",
    "desk.cancel": "Cancel",
    "desk.late": "Overdue",
    "desk.late.first_response": "First answer overdue",
    "desk.late.next_response": "Answer overdue",
    "desk.late.resolution": "Open too long",
    "desk.noList": "The list cannot be had right now.",
    "desk.unread": "unread: {count}",
    "desk.youSaid": "You: {text}",
    "desk.closedTag": "closed",
  },
  zh: {
    "app.desk": "客服工作台",
    "app.shop": "商城",
    "app.language": "Switch to English",
    "app.languageShort": "EN",
    "app.theme": "切换深色或浅色",
    "app.you": "当前用户：{name}",
    "app.noState": "暂时连不上商城，正在重试…",

    "sale.title": "限时秒杀",
    "sale.none": "暂无进行中的活动",
    "sale.picture": "商品图片",
    "sale.save": "立省 {percent}%",
    "sale.was": "原价：{price}",
    "sale.startsIn": "距开始",
    "sale.endsIn": "距结束",
    "sale.over": "活动已结束",
    "sale.days": "天",
    "sale.hours": "时",
    "sale.minutes": "分",
    "sale.seconds": "秒",
    "sale.left": "剩余 {left} / {stock} 件",
    "sale.stock": "剩余库存",
    "sale.onePer": "每人限购一件",

    "buy.before": "即将开始",
    "buy.ready": "立即抢购",
    "buy.sending": "提交中…",
    "buy.queued": "排队中…",
    "buy.won": "抢购成功",
    "buy.soldOut": "已售罄",
    "buy.after": "活动已结束",
    "buy.again": "再试一次",
    "buy.wait": "{seconds} 秒后可重试",

    "hint.before": "到点自动开放，无需刷新。",
    "hint.during": "点一次就够了，排队名额会一直保留。",
    "hint.soldOut": "已全部抢完。若有名额退回，会在此显示。",
    "hint.after": "感谢光临，下次再见。",

    "result.queued": "名额已为您保留，正在生成订单。",
    "result.slow": "等待时间比平时长，您可以先离开，名额会一直保留。",
    "result.won": "下单成功。",
    "result.cancel": "取消订单",
    "result.closed": "订单已关闭，名额已重新开放。",
    "won.CANCELLING": "正在取消…",
    "won.ALREADY_PAID": "订单已支付，退款请联系客服。",
    "won.PENDING": "订单还在生成，请稍后再取消。",
    "won.OFFLINE": "暂时联系不上商城，可以再次取消，不会有影响。",
    "result.lost": "订单未能完成，没有产生任何费用。",
    "result.order": "订单号",
    "result.copy": "复制订单号",
    "result.copied": "已复制",
    "result.RISK_REFUSED": "操作太快了，稍等片刻再试。",
    "result.RATE_LIMITED": "当前人数较多，稍等片刻再试。",
    "result.NOT_STARTED": "活动还没开始，请稍候。",
    "result.SOLD_OUT": "已全部抢完。若有名额退回，会在此显示。",
    "result.ENDED": "活动已结束。",
    "result.LIMIT_EXCEEDED": "您已达到每人限购数量。",
    "result.NOT_READY": "活动正在准备中，请稍后再试。",
    "result.OFFLINE": "暂时联系不上商城。本次请求已保留，重试不会重复下单。",
    "result.UNAUTHENTICATED": "登录已过期，请刷新页面。",
    "result.broken": "我们这边出了点问题。本次请求已保留，重试不会重复下单。",
    "result.trace": "追踪号",

    "promise.once": "不会重复下单",
    "promise.onceMore": "无论点几次、网络多差，都只有一个订单、一个订单号。",
    "promise.fair": "先到先得",
    "promise.fairMore": "已经为您保留的名额，绝不收回。",
    "promise.people": "随时有人应答",
    "promise.peopleMore": "给我们留言吧。消息出现一个勾，就已永久保存。",

    "chat.title": "在线客服",
    "chat.open": "打开聊天",
    "chat.openUnread": "打开聊天，{count} 条未读",
    "chat.close": "关闭聊天",
    "chat.placeholder": "输入消息",
    "chat.send": "发送",
    "chat.empty": "您好，请问有什么可以帮您？",
    "chat.older": "更早的消息",
    "chat.loading": "加载中…",
    "chat.messages": "消息",
    "chat.you": "我",
    "chat.bot": "自动回复",
    "chat.agent": "客服",
    "chat.sending": "发送中",
    "chat.sent": "已发送",
    "chat.delivered": "已送达",
    "chat.read": "已读",
    "chat.failed": "未发送",
    "chat.retry": "重新发送",
    "chat.discard": "删除",
    "chat.recalled": "消息已撤回",
    "chat.closed": "会话已结束，发送新消息将开启新的会话。",
    "chat.closedAgent": "会话已结束。",
    "chat.handedOver": "该会话已转交他人。",
    "chat.waiting": "客服暂时繁忙，您已在排队，消息会一直保留。",
    "chat.typing": "正在输入…",
    "chat.recall": "撤回",
    "chat.full": "等待发送的消息太多了。",
    "chat.today": "今天",
    "chat.image": "图片",
    "chat.reason.SESSION_CLOSED": "会话已结束",
    "chat.reason.NOT_FOUND": "会话不存在",
    "chat.reason.TOO_LARGE": "内容过长",
    "chat.reason.EMPTY_CONTENT": "内容为空",
    "chat.reason.CLIENT_MSG_ID_CONFLICT": "消息编号已用于其他内容",

    "link.idle": "未连接",
    "link.connecting": "连接中…",
    "link.online": "已连接",
    "link.waiting": "正在重连…",
    "link.ended": "连接已断开",
    "link.retry": "重新连接",

    "desk.title": "客服工作台",
    "desk.sessions": "会话",
    "desk.none": "还没有会话",
    "desk.noneMore": "顾客发来消息后会显示在这里。",
    "desk.choose": "请选择一个会话",
    "desk.back": "返回列表",
    "desk.status": "我的状态",
    "desk.online": "在线",
    "desk.busy": "忙碌",
    "desk.away": "离开",
    "desk.offline": "离线",
    "desk.waiting": "排队中",
    "desk.take": "接待",
    "desk.takeWhom": "接待 {name}",
    "desk.since": "已等 {minutes} 分钟",
    "desk.transfer": "转交",
    "desk.transferTo": "转交给",
    "desk.toLine": "放回排队",
    "desk.open": "{count} 个进行中",
    "desk.close": "结束",
    "desk.closeAsk": "为双方结束这个会话？",
    "desk.cancel": "取消",
    "desk.late": "超时",
    "desk.late.first_response": "首次回复超时",
    "desk.late.next_response": "回复超时",
    "desk.late.resolution": "会话过久",
    "desk.noList": "暂时取不到列表。",
    "desk.unread": "{count} 条未读",
    "desk.youSaid": "我：{text}",
    "desk.closedTag": "已结束",
  },
};

const REMEMBERED = "sluice.language";
const LOCALES = { zh: "zh-CN", en: "en-GB" };
const listeners = new Set();

let language = localStorage.getItem(REMEMBERED) ?? (navigator.language.toLowerCase().startsWith("zh") ? "zh" : "en");
if (!(language in TEXTS)) language = "en";

/** The BCP 47 tag for `Intl`. */
export function locale() {
  return LOCALES[language];
}

/** Whether there is a text of that name. */
export function has(key) {
  return key in TEXTS[language];
}

/** The text of that name, its `{places}` filled in. */
export function t(key, places = {}) {
  const text = TEXTS[language][key] ?? key;
  return text.replace(/\{(\w+)\}/g, (whole, name) => places[name] ?? whole);
}

/** Words every marked element under `root`. */
export function translate(root = document) {
  document.documentElement.lang = locale();
  for (const element of root.querySelectorAll("[data-i18n]")) element.textContent = t(element.dataset.i18n);
  for (const attribute of ["aria-label", "placeholder", "title", "alt"]) {
    for (const element of root.querySelectorAll(`[data-i18n-${attribute}]`)) {
      element.setAttribute(attribute, t(element.getAttribute(`data-i18n-${attribute}`)));
    }
  }
}

/** Speaks the other language from now on. */
export function switchLanguage() {
  language = language === "zh" ? "en" : "zh";
  localStorage.setItem(REMEMBERED, language);
  translate();
  for (const listener of listeners) listener();
}

/** Calls `listener` after each switch, for what the page words itself. */
export function onSwitch(listener) {
  listeners.add(listener);
}

/** Cents as money. */
export function money(cents) {
  const value = Number(cents) / 100;
  return new Intl.NumberFormat(locale(), {
    style: "currency", currency: "CNY", currencyDisplay: "narrowSymbol", minimumFractionDigits: value % 1 ? 2 : 0,
  }).format(value);
}

/** Hour and minute. */
export function clockTime(ms) {
  return new Intl.DateTimeFormat(locale(), { hour: "2-digit", minute: "2-digit", hour12: false }).format(ms);
}

/** The day a message belongs to. */
export function day(ms) {
  const date = new Date(ms);
  if (date.toDateString() === new Date().toDateString()) return t("chat.today");
  return new Intl.DateTimeFormat(locale(), { month: "long", day: "numeric" }).format(date);
}
