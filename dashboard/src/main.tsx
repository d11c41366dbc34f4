import { render } from "preact";
import { startLive } from "./api/live";
import { App } from "./app";
import { listenToHistory } from "./state/address";
import { applyTheme } from "./state/theme";
import "./style/tokens.css";
import "./style/page.css";
import "./style/parts.css";

applyTheme();
listenToHistory();
const page = document.getElementById("page");
if (page) {
  page.replaceChildren();
  render(<App />, page);
}
startLive();
