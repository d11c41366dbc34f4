// Light, dark, or as the system has it; the choice is the browser's, not the service's.
import { signal } from "@preact/signals";
import { themeRevision } from "../plots/colours";
import { store, stored } from "./stored";

export type Theme = "system" | "light" | "dark";
export const theme = signal<Theme>(chosen());

function chosen(): Theme {
  const found = stored("localStorage", "theme");
  return found === "light" || found === "dark" ? found : "system";
}

export function setTheme(next: Theme): void {
  theme.value = next;
  store("localStorage", "theme", next === "system" ? null : next);
  applyTheme();
}

export function applyTheme(): void {
  document.documentElement.dataset.theme = theme.value;
  themeRevision.value++;
}

if (typeof matchMedia !== "undefined")
  matchMedia("(prefers-color-scheme: dark)").addEventListener("change", () => {
    themeRevision.value++;
  });
