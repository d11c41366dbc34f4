// What the browser keeps for the page: with its storage switched off, or full, the page works all the same.

type Place = "localStorage" | "sessionStorage"; // of all tabs, for good; of this tab, until it is closed

export function stored(place: Place, name: string): string | null {
  try {
    return globalThis[place]?.getItem(name) ?? null;
  } catch {
    return null; // a browser that keeps nothing refuses even the question
  }
}

/** null takes it away. False where the browser keeps nothing, or no more: what it has stays. */
export function store(place: Place, name: string, text: string | null): boolean {
  try {
    if (text === null) globalThis[place]?.removeItem(name);
    else globalThis[place]?.setItem(name, text);
    return true;
  } catch {
    return false; // it is known for as long as the page is there
  }
}
