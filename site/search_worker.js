// The search of the site runs in a worker. Browsers start no worker for a page that is opened from a disk, so there it runs in a hidden frame.
// The theme would load a script of this kind from the network.
if (location.protocol === "file:") {
  const load = (inside, url) => new Promise((resolve, reject) => {
    const script = inside.document.createElement("script");
    script.src = new URL(url, location.href).href;
    script.onload = resolve;
    script.onerror = () => reject(new Error(`cannot load ${url}`));
    inside.document.body.append(script);
  });
  window.IFrameWorker = class extends EventTarget {
    constructor(url) {
      super();
      this.frame = document.createElement("iframe");
      this.frame.hidden = true;
      document.body.append(this.frame);
      const inside = this.frame.contentWindow;
      inside.document.open();
      inside.document.write("<!doctype html><html><body></body></html>");
      inside.document.close();
      inside.importScripts = (...urls) => urls.reduce((before, each) => before.then(() => load(inside, each)), Promise.resolve());
      inside.postMessage = (data) => {
        const event = new MessageEvent("message", { data });
        this.dispatchEvent(event);
        if (this.onmessage) this.onmessage(event);
      };
      this.ready = load(inside, url);
    }
    postMessage(data) {
      this.ready.then(() => this.frame.contentWindow.dispatchEvent(new MessageEvent("message", { data })));
    }
    terminate() {
      this.frame.remove();
    }
  };
  window.Worker = window.IFrameWorker;
}
