import { startLive } from "./live.js";
import { startTables, sortAgain } from "./tables.js";
import { startKeys } from "./keys.js";
import { startCharts } from "./charts.js";
import { startTheme } from "./switch.js";
import { startForms } from "./forms.js";

startTheme();
startTables();
startCharts();
startForms();
startKeys();
startLive(sortAgain);
