// Puts the page together.

import { start as startChat } from "./chat.js";
import { byId, setText } from "./dom.js";
import { start as startDownloads } from "./downloads.js";
import { start as startEvents } from "./events.js";
import { start as startKeys } from "./keys.js";
import { restart, start as startLive } from "./live.js";
import { start as startLogs } from "./logs.js";
import { start as startModels } from "./models.js";
import { start as startQueue } from "./queue.js";
import { start as startTheme } from "./theme.js";

startTheme();
startEvents();
startModels(startChat());
startQueue();
startDownloads();
startLogs();
startKeys(restart);
startLive((state, text) => {
  const line = byId("connection");
  line.dataset.state = state;
  setText(line, text);
});
