// Light, dark, or as the system has it; the choice is the browser's, not the service's.
import { signal } from "@preact/signals";
import { themeRevision } from "../plots/colours";

export type Theme = "system" | "light" | "dark";
export const theme = signal<Theme>(stored());

function stored(): Theme {
  const found = typeof localStorage === "undefined" ? null : localStorage.getItem("theme");
  return found === "light" || found === "dark" ? found : "system";
}

export function setTheme(next: Theme): void {
  theme.value = next;
  if (next === "system") localStorage.removeItem("theme");
  else localStorage.setItem("theme", next);
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
