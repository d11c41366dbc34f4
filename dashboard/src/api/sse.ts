// Server-sent events read with fetch: unlike EventSource it can send the header by which the service knows its own page.

export interface ServerEvent {
  id: string;
  name: string;
  data: string;
}

const MOST_CHARACTERS = 32 << 20; // of one event

/** Takes text as it comes, in any pieces, and gives whole events. */
export class EventParser {
  private rest = "";
  private id = "";

  push(text: string): ServerEvent[] {
    this.rest += text.replace(/\r\n?/g, "\n");
    if (this.rest.length > MOST_CHARACTERS) throw new Error("an event of the stream is too long");
    const found: ServerEvent[] = [];
    let end = this.rest.indexOf("\n\n");
    while (end >= 0) {
      const event = this.parse(this.rest.slice(0, end));
      if (event) found.push(event);
      this.rest = this.rest.slice(end + 2);
      end = this.rest.indexOf("\n\n");
    }
    return found;
  }

  private parse(block: string): ServerEvent | null {
    let name = "message";
    const data: string[] = [];
    for (const line of block.split("\n")) {
      const colon = line.indexOf(":");
      const field = colon < 0 ? line : line.slice(0, colon);
      const value = colon < 0 ? "" : line.slice(colon + 1).replace(/^ /, "");
      if (field === "id") this.id = value;
      else if (field === "event") name = value;
      else if (field === "data") data.push(value);
    }
    return data.length > 0 ? { id: this.id, name, data: data.join("\n") } : null;
  }
}

/** Reads until the stream ends or breaks; the answer's status is given back where it is no stream. */
export async function readEvents(
  url: string,
  headers: Record<string, string>,
  take: (event: ServerEvent) => void,
  abort: AbortSignal,
): Promise<number> {
  const response = await fetch(url, {
    headers,
    credentials: "same-origin",
    cache: "no-store",
    redirect: "error",
    signal: abort,
  });
  if (!response.ok || !response.body) return response.status;
  const reader = response.body.pipeThrough(new TextDecoderStream()).getReader();
  const parser = new EventParser();
  for (;;) {
    const { done, value } = await reader.read();
    if (done) return response.status;
    for (const event of parser.push(value)) take(event);
  }
}
