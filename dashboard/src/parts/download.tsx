// Files of the service, fetched by the page: a link alone would come without the header of the page.
import { useSignal } from "@preact/signals";
import type { ComponentChildren } from "preact";
import { readBlob } from "../api/client";
import { asProblem } from "../api/resource";
import { saveBlob } from "../plots/figure";
import { say, settled } from "./notices";

export async function download(path: string, name: string): Promise<void> {
  try {
    saveBlob(name, await readBlob(path));
    settled(path);
  } catch (error) {
    say(asProblem(error).detail, "bad", path);
  }
}

export function Download({
  path,
  name,
  children,
  role,
}: {
  path: string;
  name: string;
  children: ComponentChildren;
  role?: "menuitem";
}) {
  const busy = useSignal(false);
  const fetchIt = async () => {
    busy.value = true;
    await download(path, name);
    busy.value = false;
  };
  return (
    <button
      type="button"
      class={role ? "" : "quiet"}
      disabled={busy.value}
      onClick={() => void fetchIt()}
      {...(role ? { role } : {})}
    >
      {children}
    </button>
  );
}
